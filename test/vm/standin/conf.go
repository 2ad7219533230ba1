package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/vishvananda/netlink"
)

// common are the keys that each of the plugins has, those that runtimes and Multus add
// among them.
type common struct {
	CNIVersion    string         `json:"cniVersion"`
	Name          string         `json:"name"`
	Type          string         `json:"type"`
	Capabilities  map[string]any `json:"capabilities,omitempty"`
	RuntimeConfig map[string]any `json:"runtimeConfig,omitempty"`
	PrevResult    map[string]any `json:"prevResult,omitempty"`
	Args          map[string]any `json:"args,omitempty"`
	IPAM          map[string]any `json:"ipam,omitempty"`
	DeviceID      string         `json:"deviceID"`
	PCIBusID      string         `json:"pciBusID,omitempty"`
}

// parse reads a configuration.
func parse(stdin []byte, conf any) error {
	dec := json.NewDecoder(bytes.NewReader(stdin))
	dec.DisallowUnknownFields()
	return dec.Decode(conf)
}

// runtime is a text of runtimeConfig; "" if it is not there.
func (c *common) runtime(key string) string {
	text, _ := c.RuntimeConfig[key].(string)
	return text
}

// previous is the result of the plugin before.
func (c *common) previous() (*current.Result, error) {
	if c.PrevResult == nil {
		return nil, fmt.Errorf("there is no prevResult: %s must be called as part of a plugin chain", c.Type)
	}
	data, err := json.Marshal(c.PrevResult)
	if err != nil {
		return nil, err
	}
	result, err := version.NewResult(c.CNIVersion, data)
	if err != nil {
		return nil, err
	}
	return current.NewResultFromResult(result)
}

// addresses has the IPAM plugin add addresses to the result, for the interface of that
// number, and gives them to it unless it is none of the kernel's.
func (c *common) addresses(args *skel.CmdArgs, result *current.Result, index int, inKernel bool) error {
	plugin, _ := c.IPAM["type"].(string)
	if plugin == "" {
		return nil
	}
	answer, err := invoke.DelegateAdd(context.Background(), plugin, args.StdinData, nil)
	if err != nil {
		return err
	}
	ipam, err := current.NewResultFromResult(answer)
	if err == nil && len(ipam.IPs) == 0 {
		err = fmt.Errorf("the IPAM plugin %s gave no address", plugin)
	}
	if err != nil {
		return err
	}
	for _, ip := range ipam.IPs {
		ip.Interface = &index
	}
	result.IPs, result.Routes, result.DNS = ipam.IPs, ipam.Routes, ipam.DNS
	if !inKernel {
		return nil
	}
	return inNetns(args.Netns, func() error {
		link, err := netlink.LinkByName(args.IfName)
		for _, ip := range ipam.IPs {
			if err == nil {
				err = netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: ip.Address.IP, Mask: ip.Address.Mask}})
			}
		}
		return err
	})
}

// noAddresses gives the addresses back.
func (c *common) noAddresses(args *skel.CmdArgs) error {
	if plugin, _ := c.IPAM["type"].(string); plugin != "" {
		return invoke.DelegateDel(context.Background(), plugin, args.StdinData, nil)
	}
	return nil
}

// print prints the result in the version that the caller wants.
func (c *common) print(result *current.Result) error {
	return types.PrintResult(result, c.CNIVersion)
}

// save keeps a value for DEL.
func save(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// load reads what save has kept.
func load(path string, value any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, value)
}
