package podnet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"devinfo-cni.io/devinfo"
)

const networkStatus = "k8s.v1.cni.cncf.io/network-status"

// networkInfo reads the agent's file on all networks.
func (all *networks) networkInfo(_ string, data []byte) error {
	var file struct {
		Interfaces []struct {
			Network, Interface, MAC string
			MTU                     int
			DeviceInfo              json.RawMessage
		}
	}
	err := json.Unmarshal(data, &file)
	for _, i := range file.Interfaces {
		device, bad := deviceOf(i.DeviceInfo)
		all.add(Network{Name: i.Network, Interface: i.Interface, Device: device, MAC: i.MAC, MTU: i.MTU})
		err = errors.Join(err, bad)
	}
	return err
}

// infoFile reads a device-info file, which is named after its interface.
func (all *networks) infoFile(name string, data []byte) error {
	if path.Base(name) == "network-info.json" {
		return nil
	}
	device, err := deviceOf(data)
	if err == nil {
		all.add(Network{Interface: strings.TrimSuffix(path.Base(name), ".json"), Device: device})
	}
	return err
}

// deviceOf is nil for no text.
func deviceOf(text []byte) (*devinfo.Info, error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	info, err := devinfo.Parse(text)
	if err != nil {
		return nil, err
	}
	if bad := info.Validate().Errors(); len(bad) > 0 {
		return nil, &devinfo.InvalidError{Violations: bad}
	}
	return info, nil
}

// status reads annotations as the downward API writes them, or the value of one.
func (all *networks) status(_ string, data []byte) error {
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] != '[' {
		value, err := annotation(string(data))
		if value == "" || err != nil {
			return err
		}
		data = []byte(value)
	}
	if len(data) == 0 {
		return nil
	}
	var list []struct {
		Name, Interface, MAC string
		MTU                  int
		Default              bool
		IPs                  []string
		DeviceInfo           json.RawMessage `json:"device-info"`
	}
	err := json.Unmarshal(data, &list)
	for _, i := range list {
		n := Network{Name: i.Name, Interface: i.Interface, Default: i.Default, MAC: i.MAC, MTU: i.MTU, Addresses: addresses(i.IPs)}
		var bad error
		n.Device, bad = deviceOf(i.DeviceInfo)
		all.add(n)
		err = errors.Join(err, bad)
	}
	return err
}

// annotation is the value of network-status in lines KEY="VALUE"; "" = it is not there.
func annotation(lines string) (string, error) {
	for line := range strings.Lines(lines) {
		if quoted, ok := strings.CutPrefix(line, networkStatus+"="); ok {
			value, err := strconv.Unquote(strings.TrimSpace(quoted))
			if err != nil {
				return "", fmt.Errorf("annotation %s: %.40s: %w", networkStatus, quoted, err)
			}
			return value, nil
		}
	}
	return "", nil
}

func addresses(texts []string) (list []netip.Prefix) {
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			list = append(list, prefix)
		} else if address, err := netip.ParseAddr(text); err == nil {
			list = append(list, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	return list
}

// A claim is one version of the metadata; v1alpha1 and v1beta1 have the same keys.
type claim struct {
	APIVersion, PodClaimName string
	Metadata                 struct{ Name string }
	Requests                 []struct {
		Name    string
		Devices []struct {
			Attributes  map[string]attribute
			NetworkData *struct {
				InterfaceName, HardwareAddress string
				IPs                            []string
			}
		}
	}
}

// An attribute is of one of the kinds of which these two are used.
type attribute struct {
	String string
	Int    int
}

// metadata reads the device metadata of a claim by one driver: a stream of the same in
// several versions, of which the first that is known counts. A device counts that has
// network data, or is one of cni-dra-driver's own; others are no networks.
func (all *networks) metadata(_ string, data []byte) error {
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		var c claim
		if err := d.Decode(&c); errors.Is(err, io.EOF) {
			return errors.New("none of its versions is v1beta1 or v1alpha1 of metadata.resource.k8s.io")
		} else if err != nil {
			return err
		}
		if c.APIVersion != "metadata.resource.k8s.io/v1beta1" && c.APIVersion != "metadata.resource.k8s.io/v1alpha1" {
			continue
		}
		if c.PodClaimName == "" {
			c.PodClaimName = c.Metadata.Name
		}
		for _, request := range c.Requests {
			for _, device := range request.Devices {
				n := Network{Name: c.PodClaimName + "/" + request.Name, Device: described(device.Attributes), MTU: device.Attributes["mtu"].Int}
				if net := device.NetworkData; net != nil {
					n.Interface, n.MAC, n.Addresses = net.InterfaceName, net.HardwareAddress, addresses(net.IPs)
				} else if device.Attributes["devinfo-cni.io/kind"].String == "" {
					continue
				}
				all.add(n)
			}
		}
		return nil
	}
}

// described is what attributes, ours and Kubernetes' own, say of a device; nil = nothing.
func described(attributes map[string]attribute) *devinfo.Info {
	of := func(name string) string { return attributes["devinfo-cni.io/"+name].String }
	pci, info := attributes["resource.kubernetes.io/pciBusID"].String, &devinfo.Info{Type: devinfo.Type(of("type")), Version: devinfo.SpecVersion}
	if info.Type == "" && of("kind") != "vdpa" {
		info.Type = devinfo.TypePCI // without a network, or of another driver
	}
	switch info.Type {
	case devinfo.TypePCI:
		info.PCI = &devinfo.PCI{Address: pci, VhostNet: of("vhostNet"), RDMADevice: of("rdmaDevice"), PFAddress: of("pfPCIBusID"), Representor: of("representor")}
	case devinfo.TypeVDPA:
		info.VDPA = &devinfo.VDPA{ParentDevice: of("vdpaParent"), Driver: of("vdpaDriver"), Path: of("devicePath"), Address: pci, PFAddress: of("pfPCIBusID"), Representor: of("representor")}
	case devinfo.TypeVhostUser:
		info.VhostUser = &devinfo.VhostUser{Mode: of("vhostUserMode"), Path: of("socketPath")}
	case devinfo.TypeMemif:
		info.Memif = &devinfo.Memif{Role: of("memifRole"), Path: of("socketPath"), Mode: of("memifMode")}
	}
	if len(info.Validate().Errors()) > 0 {
		return nil
	}
	return info
}
