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
	"devinfo-cni.io/test/difftest"
)

// No plugin of the chain writes device information. A user who can replace the file with a link would choose the file
// that the runtime mounts.
func TestDriverDescribesDeviceThatNoPluginDescribes(t *testing.T) {
	for _, exposed := range []error{nil, errors.New("it is theirs")} {
		inBubble(t, func(t *testing.T, r *rig, p *plugins) {
			r.offer("mlx5-switchdev", "")
			var asked []string
			r.options.Unexposed = func(root, dir string) error {
				asked = append(asked, root+" "+dir)
				return exposed
			}
			r.start()
			claim := ownClaim("u1", vf3, network(`{"type":"sriov"}`)) // the VF is bound to vfio-pci
			setIfName(claim, "net2")                                  // the captured pod has no net2
			sb := r.attachPod(claim)
			if at := r.attachment("u1"); at.PCI() != "0000:03:00.5" || len(r.files("info")) != 1 {
				t.Errorf("got %s, files %q", at.Info, r.files("info"))
			}
			mounted := strings.Contains(r.spec(), filepath.Join(r.options.DeviceInfoDir, r.files("info")[0]))
			difftest.Equal(t, mounted, exposed == nil)
			difftest.Contains(t, r.spec(), `"DEVINFO_NET2_PCI_ADDRESS=0000:03:00.5"`) // variables do not need the file
			difftest.Equal(t, asked, []string{"/ " + r.options.DeviceInfoDir})
			r.mu.Lock()
			told := r.metadata[0].Metadata.Attributes
			r.mu.Unlock()
			if n := told["devinfo-cni.io/vfIndex"].IntValue; n == nil || *n != 3 || told["devinfo-cni.io/type"].StringValue == nil {
				t.Errorf("attributes of the slice or of the device information are missing: %v", told)
			}
			r.endAndUnprepare(sb, "u1")
		})
	}
}

// An administrator may have changed the directory since the ADD.
func TestDeviceInfoFileIsRemovedFromItsOriginalDirectory(t *testing.T) {
	r := newRig(t)
	r.start()
	sb := r.attachPod(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", "info"}))
	r.expectFiles("info", 1)
	r.options.DeviceInfoDir = filepath.Join(r.dir, "elsewhere")
	r.start()
	r.endAndUnprepare(sb, "u1")
}

// ovs-cni reads the file of a vDPA device at the start of ADD.
func TestADDFindsKnownFactsInDeviceInfoFile(t *testing.T) {
	const vdpa, function = "vdpa-vdpa4", "0000:65:00.4"
	const written = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:65:00.4","representor-device":"of-plugin"}}`
	for name, test := range map[string]struct {
		plugin func(path string) error
		want   string // part of the file after ADD; "" = ADD fails
	}{
		"a plugin that writes nothing":        {func(string) error { return nil }, `"path": "/sys/bus/virtio/devices/virtio7"`},
		"a plugin that writes":                {func(path string) error { return os.WriteFile(path, []byte(written), 0o644) }, "of-plugin"},
		"a plugin that removes the file":      {os.Remove, `"path": "/sys/bus/virtio/devices/virtio7"`},
		"a plugin that writes an empty file":  {func(path string) error { return os.WriteFile(path, nil, 0o644) }, ""},
		"a plugin that fails":                 {func(string) error { return errNoMaster }, ""},
		"a plugin that fails after it writes": {func(path string) error { return errors.Join(os.WriteFile(path, []byte(written), 0o644), errNoMaster) }, ""},
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			r.offer("mlx5-vdpa", `devices: [{select: 'true', sharing: exclusive}]`)
			r.options.Devices.Finder.Interfaces = newNode(t, "mlx5-switchdev").finder().Interfaces // the captured pod of this host has no net9
			agent := r.start()
			p.setHook(func(command, _, _ string) error {
				if command != "ADD" {
					return nil
				}
				path := filepath.Join(r.options.DeviceInfoDir, "net.s1_net9")
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if !strings.Contains(string(text), function) {
					t.Errorf("the plugin reads %s", text)
				}
				return test.plugin(path)
			})
			claim := ownClaim("u1", vdpa, network(`{"type":"ovs"}`))
			setIfName(claim, "net9")
			r.prepare(claim)
			sb := r.sandbox("s1", "pod")
			err := r.runPod(sb)
			waitIdle()
			if test.want == "" {
				if err == nil || len(r.files("info")) > 0 {
					t.Errorf("%v, files %q", err, r.files("info"))
				}
			} else {
				must(t, err)
				text := difftest.Read(t, filepath.Join(r.options.DeviceInfoDir, "net.s1_net9"))
				difftest.Contains(t, text, test.want)
				difftest.Contains(t, string(r.attachment("u1").Info), function)
			}
			r.endPod(sb)
			must(t, agent.Unprepare(t.Context(), "u1"))
			r.expectNothing()
		}))
	}
}

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
