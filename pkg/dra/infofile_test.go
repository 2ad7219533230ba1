package dra_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
