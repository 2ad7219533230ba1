// Plugin is a small CNI plugin that writes the device-info file of a vhost-user socket with the library devinfo. Copy it,
// and make your own device in add. Pods mount the socket's directory by hostPath.
//
//	{"cniVersion": "1.0.0", "name": "fast", "type": "plugin", "socket": "/run/fast/switch.sock",
//	 "capabilities": {"CNIDeviceInfoFile": true}}
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/devinfo"
)

type network struct {
	runtime
	CNIVersion string `json:"cniVersion"`
	Socket     string `json:"socket"` // on which the switch listens
}

type runtime struct {
	RuntimeConfig struct {
		DeviceInfoFile string `json:"CNIDeviceInfoFile"` // "" = the runtime wants no file
	} `json:"runtimeConfig"`
}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Check: check, Del: del}, version.PluginSupports(current.ImplementedSpecVersion, "1.0.0", "0.4.0", "0.3.1", "0.3.0"), "an example of the library devinfo")
}

func parse(stdin []byte, into any) error {
	if err := json.Unmarshal(stdin, into); err != nil {
		return types.NewError(types.ErrDecodingFailure, "the network configuration is not valid", err.Error())
	}
	return nil
}

func add(args *skel.CmdArgs) error {
	var n network
	if err := parse(args.StdinData, &n); err != nil {
		return err
	}
	if n.Socket == "" {
		return types.NewError(types.ErrInvalidNetworkConfig, "socket is missing: give the path of a vhost-user socket", "")
	}
	// Here a plugin makes its port at the switch, and configures the interface.
	if path := n.RuntimeConfig.DeviceInfoFile; path != "" {
		existing, err := devinfo.ReadFile(path) // Multus's copy of the device plugin's file, or nil with an error
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintln(os.Stderr, "replacing the device-info file:", err) // another program's mistake need not fail the pod
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
	var n network
	if err := parse(args.StdinData, &n); err != nil || n.RuntimeConfig.DeviceInfoFile == "" {
		return err
	}
	info, err := devinfo.ReadFile(n.RuntimeConfig.DeviceInfoFile)
	if err == nil && (info.VhostUser == nil || info.VhostUser.Path != n.Socket) {
		err = fmt.Errorf("%s no longer has the socket %s: another program has written it", n.RuntimeConfig.DeviceInfoFile, n.Socket)
	}
	return err
}

// Del frees the port at the switch too. It succeeds if nothing is left, and reads only what it needs, so that a network that
// ADD refuses can be deleted. Multus passes the path of ADD, and removes the file after DEL too; other runtimes may not.
func del(args *skel.CmdArgs) error {
	var r runtime
	if err := parse(args.StdinData, &r); err != nil {
		return err
	}
	return devinfo.RemoveFile(r.RuntimeConfig.DeviceInfoFile)
}
