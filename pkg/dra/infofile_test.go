package dra_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// No plugin of the chain writes device information. A user who can replace the file with a link would choose the file
// that the runtime mounts.
func TestDriverDescribesDeviceThatNoPluginDescribes(t *testing.T) {
	for _, exposed := range []error{nil, errors.New("it is theirs")} {
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			r.Offer("mlx5-switchdev", "")
			var asked []string
			r.Options.Unexposed = func(root, dir string) error {
				asked = append(asked, root+" "+dir)
				return exposed
			}
			r.Start()
			claim := dratest.DeviceClaim("u1", dratest.VF3, dratest.Network(`{"type":"sriov"}`)) // the VF is bound to vfio-pci
			dratest.SetIfName(claim, "net2")                                                     // the captured pod has no net2
			sb := r.AttachPod(claim)
			if at := r.Attachment("u1"); at.PCI() != "0000:03:00.5" || len(r.Files("info")) != 1 {
				t.Errorf("got %s, files %q", at.Info, r.Files("info"))
			}
			mounted := strings.Contains(spec(r), filepath.Join(r.Options.DeviceInfoDir, r.Files("info")[0]))
			difftest.Equal(t, mounted, exposed == nil)
			difftest.Contains(t, spec(r), `"DEVINFO_NET2_PCI_ADDRESS=0000:03:00.5"`) // variables do not need the file
			difftest.Equal(t, asked, []string{"/ " + r.Options.DeviceInfoDir})
			told := r.Metadata()[0].Metadata.Attributes
			if n := told["devinfo-cni.io/vfIndex"].IntValue; n == nil || *n != 3 || told["devinfo-cni.io/type"].StringValue == nil {
				t.Errorf("attributes of the slice or of the device information are missing: %v", told)
			}
			r.EndAndUnprepare(sb, "u1")
		})
	}
}

// An administrator may have changed the directory since the ADD.
func TestDeviceInfoFileIsRemovedFromItsOriginalDirectory(t *testing.T) {
	r := dratest.NewRig(t)
	r.Start()
	sb := r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "info")))
	r.ExpectFiles("info", 1)
	r.Options.DeviceInfoDir = filepath.Join(r.Dir, "elsewhere")
	r.Start()
	r.EndAndUnprepare(sb, "u1")
}

// ovs-cni reads the file of a vDPA device at the start of ADD.
func TestADDFindsKnownFactsInDeviceInfoFile(t *testing.T) {
	const vdpa, function = "vdpa-vdpa4", "0000:65:00.4"
	const written = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:65:00.4","representor-device":"of-plugin"}}`
	for name, test := range map[string]struct {
		plugin func(path string) error
		want   string // part of the file after ADD; "" = ADD fails
	}{
		"a plugin that writes nothing":       {func(string) error { return nil }, `"path": "/sys/bus/virtio/devices/virtio7"`},
		"a plugin that writes":               {func(path string) error { return os.WriteFile(path, []byte(written), 0o644) }, "of-plugin"},
		"a plugin that removes the file":     {os.Remove, `"path": "/sys/bus/virtio/devices/virtio7"`},
		"a plugin that writes an empty file": {func(path string) error { return os.WriteFile(path, nil, 0o644) }, ""},
		"a plugin that fails":                {func(string) error { return dratest.ErrNoMaster }, ""},
		"a plugin that fails after it writes": {func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(written), 0o644), dratest.ErrNoMaster)
		}, ""},
	} {
		t.Run(name, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			r.Offer("mlx5-vdpa", `devices: [{select: 'true', sharing: exclusive}]`)
			r.Options.Devices.Finder.Interfaces = dratest.NewNode(t, "mlx5-switchdev").Finder().Interfaces // the captured pod of this host has no net9
			agent := r.Start()
			r.Plugins.SetHook(func(command, _, _ string) error {
				if command != "ADD" {
					return nil
				}
				path := filepath.Join(r.Options.DeviceInfoDir, "net.s1_net9")
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if !strings.Contains(string(text), function) {
					t.Errorf("the plugin reads %s", text)
				}
				return test.plugin(path)
			})
			claim := dratest.DeviceClaim("u1", vdpa, dratest.Network(`{"type":"ovs"}`))
			dratest.SetIfName(claim, "net9")
			r.Prepare(claim)
			sb := r.Sandbox("s1", "pod")
			err := r.RunPod(sb)
			dratest.WaitIdle()
			if test.want == "" {
				if err == nil || len(r.Files("info")) > 0 {
					t.Errorf("%v, files %q", err, r.Files("info"))
				}
			} else {
				difftest.Must(t, err)
				text := difftest.Read(t, filepath.Join(r.Options.DeviceInfoDir, "net.s1_net9"))
				difftest.Contains(t, text, test.want)
				difftest.Contains(t, string(r.Attachment("u1").Info), function)
			}
			r.EndPod(sb)
			difftest.Must(t, agent.Unprepare(t.Context(), "u1"))
			r.ExpectNothing()
		}))
	}
}

const (
	vf3File        = "example.com-vf-0000:03:00.5-device.json"
	pluginFileText = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.5"}}`
)

// writePluginFile writes the device plugin's file of vf3.
func writePluginFile(r *dratest.Rig, text string) {
	r.T.Helper()
	difftest.Write(r.T, filepath.Join(r.Dir, "dp", vf3File), text, 0o644)
}

func pluginFile(r *dratest.Rig) string {
	r.T.Helper()
	return difftest.Read(r.T, filepath.Join(r.Dir, "dp", vf3File))
}

// Multus copies the file before ADD. test/peers does so with Multus' own code and this file. A claim with a
// network has a device-info file instead.
func TestDevicePluginFileIsWrittenForDeviceWithoutNetwork(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, ""))
		want := difftest.Read(t, "../../test/peers/testdata/device-of-claim.json")
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
			unknown := test.unknown
			r.Options.Devices.Advertised = func(_ context.Context, resource, device string) (bool, error) {
				difftest.Equal(t, []string{resource, device}, []string{"example.com/vf", "0000:03:00.5"})
				return test.live, unknown
			}
			writePluginFile(r, test.file)
			r.Start()
			if unknown != nil {
				r.PrepareFails(dratest.DeviceClaim("u1", dratest.VF3, ""), "the kubelet does not answer", vf3File)
				difftest.Equal(t, pluginFile(r), test.file)
				r.ExpectFiles("cdi", 0)
				unknown = nil
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
				writePluginFile(r, test.file)
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
