package dra_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/test/difftest"
)

const (
	vf3File        = "example.com-vf-0000:03:00.5-device.json"
	pluginFileText = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.5"}}`
)

// writePluginFile writes the device plugin's file of vf3.
func (r *rig) writePluginFile(text string) {
	r.t.Helper()
	must(r.t, os.MkdirAll(filepath.Join(r.dir, "dp"), 0o755))
	must(r.t, os.WriteFile(filepath.Join(r.dir, "dp", vf3File), []byte(text), 0o644))
}

func (r *rig) pluginFile() string {
	r.t.Helper()
	return difftest.Read(r.t, filepath.Join(r.dir, "dp", vf3File))
}

// Multus copies the file before ADD. test/peers does so with Multus' own code and this file. A claim with a
// network has a device-info file instead.
func TestDevicePluginFileIsWrittenForDeviceWithoutNetwork(t *testing.T) {
	onNode(t, func(t *testing.T, r *rig, p *plugins) {
		r.prepare(ownClaim("u1", vf3, ""))
		want := difftest.Read(t, "../../test/peers/testdata/device-of-claim.json")
		difftest.Equal(t, r.pluginFile(), want)
		if of, err := r.options.Devices.Journal.Claim("u1"); err != nil || of == nil || of.Files[filepath.Join(r.dir, "dp", vf3File)] != want {
			t.Errorf("the lease has %+v, %v", of, err)
		}
		other := ownClaim("u2", vf0, network(`{"type":"sriov"}`))
		setIfName(other, "net2")
		sb := r.attachPod(other)
		r.expectFiles("dp", 1)
		for _, dir := range []string{"dp", "cdi"} {
			waitIdle() // the driver writes nothing more
			must(t, os.RemoveAll(filepath.Join(r.dir, dir)))
			time.Sleep(2 * time.Minute)
			difftest.Equal(t, r.pluginFile(), want)
		}
		r.start()
		r.prepare(ownClaim("u1", vf3, ""))
		difftest.Equal(t, r.pluginFile(), want)
		r.endPod(sb)
		difftest.Equal(t, r.pluginFile(), want)
		r.unprepare("u1")
		r.unprepare("u2")
		r.expectNothing()
	})
}

// The kubelet lists the devices of connected device plugins.
func TestFileOfLiveDevicePluginIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		live     bool
		unknown  error
		file     string
		replaced bool
	}{
		"a live plugin":                  {true, nil, pluginFileText, false},
		"an ended plugin":                {false, nil, pluginFileText, true},
		"a torn file of an ended plugin": {false, nil, `{"type":`, true},
		"a kubelet that is silent":       {false, errors.New("the kubelet does not answer"), pluginFileText, false},
		"a live plugin with a dash":      {true, nil, "-", false},
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			r.useJournal("mlx5-switchdev", "")
			unknown := test.unknown
			r.options.Devices.Advertised = func(_ context.Context, resource, device string) (bool, error) {
				difftest.Equal(t, []string{resource, device}, []string{"example.com/vf", "0000:03:00.5"})
				return test.live, unknown
			}
			r.writePluginFile(test.file)
			r.start()
			if unknown != nil {
				r.prepareFails(ownClaim("u1", vf3, ""), "the kubelet does not answer", vf3File)
				difftest.Equal(t, r.pluginFile(), test.file)
				r.expectFiles("cdi", 0)
				unknown = nil
				time.Sleep(10 * time.Minute)
				waitIdle()
			}
			r.prepare(ownClaim("u1", vf3, ""))
			info, err := devinfo.Parse([]byte(r.pluginFile()))
			is := err == nil && info.PCI != nil && info.PCI.Representor == "eth7"
			difftest.Same(t, "the file is replaced", is, test.replaced || test.unknown != nil)
			if test.live { // a device plugin removes its files when it exits
				must(t, os.Remove(filepath.Join(r.dir, "dp", vf3File)))
				time.Sleep(2 * time.Minute)
				r.expectFiles("dp", 1)
				r.writePluginFile(test.file)
			}
			r.unprepare("u1")
			difftest.Same(t, "the device plugin's file stays", len(r.files("dp")) > 0, test.live)
		}))
	}
}

// A record may be lost or unreadable, but the lease names the file.
func TestPluginFileWithoutRecordIsRemovedWithLease(t *testing.T) {
	onNode(t, func(t *testing.T, r *rig, p *plugins) {
		r.prepare(ownClaim("u1", vf3, ""))
		r.expectFiles("dp", 1)
		waitIdle()
		r.stop()
		r.agent = nil
		must(t, os.Remove(filepath.Join(r.options.StateDir, "u1.json")))
		r.start()
		waitIdle()
		r.expectFiles("dp", 0)
		leases, err := r.options.Devices.Journal.Claims()
		must(t, err)
		difftest.Equal(t, len(leases), 0)
	})
}
