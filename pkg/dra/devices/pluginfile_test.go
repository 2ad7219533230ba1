package devices_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

const (
	vf3File        = "example.com-vf-0000:03:00.5-device.json"
	pluginFileText = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.5"}}`
)

func pluginFile(r *dratest.Rig) string {
	r.T.Helper()
	return difftest.Read(r.T, filepath.Join(r.Dir, "dp", vf3File))
}

// Multus copies the file before ADD. test/peers does so with Multus' own code and this file. A claim with a
// network has a device-info file instead.
func TestDevicePluginFileIsWrittenForDeviceWithoutNetwork(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		difftest.Write(t, filepath.Join(r.Dir, "dp"), "", 0o600) // no directory
		r.PrepareFails(dratest.DeviceClaim("u1", dratest.VF3, ""), "/dp: not a directory")
		difftest.Must(t, os.Remove(filepath.Join(r.Dir, "dp")))
		time.Sleep(10 * time.Minute)
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, ""))
		want := difftest.Read(t, "../../../test/peers/testdata/device-of-claim.json")
		difftest.Equal(t, pluginFile(r), want)
		if of, err := r.Options.Devices.Journal.Claim("u1"); err != nil || of == nil || of.Files[filepath.Join(r.Dir, "dp", vf3File)] != want {
			t.Errorf("the lease has %+v, %v", of, err)
		}
		other := dratest.DeviceClaim("u2", dratest.VF0, dratest.Network(`{"type":"sriov"}`))
		dratest.SetIfName(other, "net2")
		sb := r.AttachPod(other)
		r.ExpectFiles("dp", 1)
		for _, dir := range []string{"dp", "cdi"} {
			dratest.WaitIdle() // the driver writes nothing more
			difftest.Must(t, os.RemoveAll(filepath.Join(r.Dir, dir)))
			time.Sleep(2 * time.Minute)
			difftest.Equal(t, pluginFile(r), want)
		}
		r.Start()
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, ""))
		difftest.Equal(t, pluginFile(r), want)
		r.EndPod(sb)
		difftest.Equal(t, pluginFile(r), want)
		r.Unprepare("u1")
		r.Unprepare("u2")
		r.ExpectNothing()
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
		t.Run(name, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			r.UseJournal("mlx5-switchdev", "")
			var answers atomic.Bool // although it was silent
			r.Options.Devices.Advertised = func(_ context.Context, resource, device string) (bool, error) {
				difftest.Equal(t, []string{resource, device}, []string{"example.com/vf", "0000:03:00.5"})
				if answers.Load() {
					return test.live, nil
				}
				return test.live, test.unknown
			}
			difftest.Write(t, filepath.Join(r.Dir, "dp", vf3File), test.file, 0o644)
			r.Start()
			if test.unknown != nil {
				r.PrepareFails(dratest.DeviceClaim("u1", dratest.VF3, ""), "the kubelet does not answer", vf3File)
				difftest.Equal(t, pluginFile(r), test.file)
				r.ExpectFiles("cdi", 0)
				answers.Store(true)
				time.Sleep(10 * time.Minute)
				dratest.WaitIdle()
			}
			r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, ""))
			info, err := devinfo.Parse([]byte(pluginFile(r)))
			is := err == nil && info.PCI != nil && info.PCI.Representor == "eth7"
			difftest.Same(t, "the file is replaced", is, test.replaced || test.unknown != nil)
			if test.live { // a device plugin removes its files when it exits
				difftest.Must(t, os.Remove(filepath.Join(r.Dir, "dp", vf3File)))
				time.Sleep(2 * time.Minute)
				r.ExpectFiles("dp", 1)
				difftest.Write(t, filepath.Join(r.Dir, "dp", vf3File), test.file, 0o644)
			}
			r.Unprepare("u1")
			difftest.Same(t, "the device plugin's file stays", len(r.Files("dp")) > 0, test.live)
		}))
	}
}

// A record may be lost or unreadable, but the lease names the file.
func TestPluginFileWithoutRecordIsRemovedWithLease(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, ""))
		r.ExpectFiles("dp", 1)
		dratest.WaitIdle()
		r.Stop()
		r.Agent = nil
		difftest.Must(t, os.Remove(filepath.Join(r.Options.StateDir, "u1.json")))
		r.Start()
		dratest.WaitIdle()
		r.ExpectFiles("dp", 0)
		leases, err := r.Options.Devices.Journal.Claims()
		difftest.Must(t, err)
		difftest.Equal(t, len(leases), 0)
	})
}
