package dra_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

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
