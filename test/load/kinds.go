package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// A kind of attachment: its network, and what of it devinfo writes down.
type kind struct {
	network string // which has that name with both runtimes
	plugins string
	// first says that no plugin runs before devinfo, so that an ADD may be repeated
	// without a DEL.
	first    bool
	capable  func(a *attachment) map[string]any
	recorded func(a *attachment) string // what its device-info file must hold
}

const capabilities = `"capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}`

var kinds = []*kind{
	{
		network:  "load-macvlan",
		plugins:  `{"type": "macvlan", "master": "` + master + `", "mode": "bridge"}, {"type": "devinfo", ` + capabilities + `}`,
		capable:  withVF,
		recorded: ownVF,
	},
	{
		network: "load-vf", first: true,
		plugins:  `{"type": "devinfo", ` + capabilities + `}`,
		capable:  withVF,
		recorded: ownVF,
	},
	{
		network: "load-memif", first: true,
		plugins: `{"type": "devinfo", "deviceInfoFile": "auto", "cdi": true, "deviceInfo": {"type": "memif",
			"memif": {"role": "master", "mode": "ethernet", "path": "` + sockets + `/{containerID}-{ifName}/memif.sock"}}}`,
		recorded: func(a *attachment) string { return `"path": "` + a.socket() + `"` },
	},
	{
		network: "load-delegating", first: true,
		plugins: `{"type": "devinfo", ` + capabilities + `, "delegates": [{"type": "bridge", "bridge": "` + bridge + `",
			"ipam": {"type": "host-local", "dataDir": "` + ipamDir + `", "subnet": "10.64.0.0/16"}}]}`,
		capable:  withVF,
		recorded: ownVF,
	},
}

func withVF(a *attachment) map[string]any {
	return map[string]any{"CNIDeviceInfoFile": a.file(), "deviceID": a.vf}
}

func ownVF(a *attachment) string { return `"pci-address": "` + a.vf + `"` }

// file is the path of its device-info file, named as Multus does.
func (a *attachment) file() string {
	return filepath.Join(infoDir, a.kind.network+"-"+a.container+"_"+a.ifName)
}

func (a *attachment) entry() string {
	return filepath.Join(stateDir, "attachments", a.kind.network+"@"+a.container+"@"+a.ifName)
}

// socket is where a memif's would be; its directory must be there before ADD.
func (a *attachment) socket() string {
	return filepath.Join(sockets, a.container+"-"+a.ifName, "memif.sock")
}

// gone is the error that something of the attachment is still there.
func (a *attachment) gone() error {
	for _, path := range []string{a.file(), a.entry()} {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s is still there", path)
		}
	}
	return nil
}
