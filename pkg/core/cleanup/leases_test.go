package cleanup_test

import (
	"encoding/json"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// silent fails to read the interfaces of the host.
type silent struct{ discovery.Interfaces }

func (silent) Interface(string, string) (link.Interface, error) {
	return link.Interface{}, fs.ErrPermission
}
func (silent) WithMAC(net.HardwareAddr) ([]string, error)     { return nil, fs.ErrPermission }
func (silent) VDPAMAC(string) (net.HardwareAddr, bool, error) { return nil, false, fs.ErrPermission }

// Whatever key names a device, its leases are asked, once for each device. What cannot be told is an error: a delegate would
// otherwise take a device of another pod.
func TestAskedLeasesAreThoseOfEachNamedDevice(t *testing.T) {
	const vf, pf = "pci-0000:03:00.2", " pci-0000:03:00.0(shared)"
	host := capturetest.Load(t, "mlx5-switchdev")
	links, err := linkhost.New(host)
	difftest.Must(t, err)
	for _, test := range []struct {
		id, delegates string
		want, err     string
		byInterface   bool
	}{
		{},
		{id: "0000:03:00.2", want: vf + pf},
		{id: "./0000:03:00.2"},
		{id: "./0000:03:00.2", delegates: `{}`, err: `deviceID: "./0000:03:00.2" is not supported`},
		{id: "0000:03:00.2", delegates: `{"pciBusID": "0000:03:00.2"}, {"deviceID": "0000:03:00.4"}`, want: vf + pf + " pci-0000:03:00.4"},
		{delegates: `{"deviceID": "a/b"}`, err: "delegates[0].deviceID"},
		{delegates: `{}, {"deviceID": "0000:03:00.2", "DEVICEID": "mlx5_core.sf.4"}`, want: vf + pf + " auxiliary-mlx5_core.sf.4"},
		{delegates: `{"kernelpath": "/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.2"}`, want: vf + pf},
		{delegates: `{"kernelpath": "/sys/devices/pci0000:00"}`},
		{delegates: `{"kernelpath": "/sys/class"}`, err: "want the directory of a device below /sys/devices"},
		{delegates: `{"device": "enp3s0f0v0"}`, want: vf + pf, byInterface: true},
		{delegates: `{"device": "eth4"}`, want: strings.TrimSpace(pf), byInterface: true},
		{delegates: `{"device": "enp3s0f0s88"}`, want: "auxiliary-mlx5_core.sf.4" + pf, byInterface: true},
		{delegates: `{"device": "lo"}`, byInterface: true},
		{delegates: `{"device": "none"}`, byInterface: true},
		{delegates: `{"hwaddr": "02:03:00:00:00:00"}`, want: vf + pf, byInterface: true},
		{delegates: `{"hwaddr": "02:03"}`},
		{delegates: `{"deviceID": "0000:03:00.4", "device": "enp3s0f0v2"}`, want: "pci-0000:03:00.4" + pf, byInterface: true},
	} {
		e := &journal.Entry{}
		if test.id != "" {
			e.Requested.DeviceIDs = []config.NamedID{{Key: "deviceID", ID: test.id}}
		}
		difftest.Must(t, json.Unmarshal([]byte("["+test.delegates+"]"), &e.Delegates))
		ask := func(sys fs.FS, interfaces discovery.Interfaces) (string, error) {
			c := cleanup.New(config.Node{}, discovery.Finder{Sys: sysfs.New(sys), Interfaces: interfaces}, "", slog.New(slog.DiscardHandler))
			leases, err := c.AskedLeases(e)
			var list []string
			for _, l := range leases {
				list = append(list, l.ID+map[journal.SharingMode]string{journal.Shared: "(shared)"}[l.Mode])
			}
			return strings.Join(list, " "), err
		}
		what := test.id + " " + test.delegates
		capturetest.EachFailure(host.Sys(), func(sys fs.FS, failed *string) {
			got, err := ask(sys, links)
			switch {
			case *failed != "" && (err != nil || got == test.want):
			case test.err != "":
				difftest.Says(t, err, test.err)
			default:
				difftest.Must(t, err)
				difftest.Same(t, what+", "+*failed+" not readable", got, test.want)
			}
		})
		if _, err := ask(host.Sys(), silent{}); test.err == "" {
			difftest.Same(t, what+", without interfaces it fails", err != nil, test.byInterface)
		}
	}
}
