// Plugin is a small CNI plugin that writes the device-info file of a vhost-user socket with the library devinfo. Copy it,
// and make your own device in add.
//
//	{"cniVersion": "1.0.0", "name": "fast", "type": "plugin", "socket": "/var/run/vpp/fast.sock",
//	 "capabilities": {"CNIDeviceInfoFile": true}}
package main

import (
	"encoding/json"
	"errors"
	"io/fs"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/devinfo"
)

type network struct {
	types.PluginConf

	Socket        string `json:"socket"` // on which the switch listens
	RuntimeConfig struct {
		DeviceInfoFile string `json:"CNIDeviceInfoFile"` // "" = the runtime wants no file
	} `json:"runtimeConfig"`
}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Check: check, Del: del}, version.All, "an example of the library devinfo")
}

func parse(stdin []byte) (n network, err error) {
	if err := json.Unmarshal(stdin, &n); err != nil {
		return n, types.NewError(types.ErrDecodingFailure, "the network configuration is not valid", err.Error())
	}
	return n, nil
}

func add(args *skel.CmdArgs) error {
	n, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	if n.Socket == "" {
		return types.NewError(types.ErrInvalidNetworkConfig, "socket is missing: give the path of a vhost-user socket", "")
	}
	// Here a plugin makes its port at the switch, and configures the interface.
	if path := n.RuntimeConfig.DeviceInfoFile; path != "" {
		existing, err := devinfo.ReadFile(path) // nil if the device plugin wrote none
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		own := &devinfo.Info{Type: devinfo.TypeVhostUser, VhostUser: &devinfo.VhostUser{Mode: "client", Path: n.Socket}}
		if err := devinfo.WriteFile(path, devinfo.Merge(existing, nil, own)); err != nil {
			return err
		}
	}
	result := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{{Name: args.IfName, Sandbox: args.Netns, SocketPath: n.Socket}},
	}
	return types.PrintResult(result, n.CNIVersion)
}

func check(args *skel.CmdArgs) error {
	n, err := parse(args.StdinData)
	if err != nil || n.RuntimeConfig.DeviceInfoFile == "" {
		return err
	}
	_, err = devinfo.ReadFile(n.RuntimeConfig.DeviceInfoFile)
	return err
}

// Del frees the port at the switch too. It succeeds if nothing is left.
func del(args *skel.CmdArgs) error {
	n, err := parse(args.StdinData)
	if err != nil || n.RuntimeConfig.DeviceInfoFile == "" { // older Multus passes no path: record that of ADD
		return err
	}
	return devinfo.RemoveFile(n.RuntimeConfig.DeviceInfoFile)
}
