package network_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

func TestMain(m *testing.M) { dratest.Main(m) }

// ovs-cni reads the file of a vDPA device at the start of ADD.
func TestADDFindsKnownFactsInDeviceInfoFile(t *testing.T) {
	const vdpa, function = "vdpa-vdpa4", "0000:65:00.4"
	const written = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:65:00.4","representor-device":"of-plugin"}}`
	for name, test := range map[string]struct {
		plugin func(path string) error
		want   string // part of the file after ADD; "" = ADD fails
	}{
		"a plugin that writes nothing": {func(string) error { return nil }, `"path": "/sys/bus/virtio/devices/virtio7"`},
		"a plugin of the future": {func(path string) error {
			return os.WriteFile(path, []byte(strings.Replace(written, "1.1.0", "2.0.0", 1)), 0o644)
		}, `"2.0.0"`},
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
				difftest.Contains(t, string(text), function)
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
				difftest.Contains(t, string(r.Record("u1").Attachments[0].Info), function)
			}
			r.EndPod(sb)
			difftest.Must(t, agent.Unprepare(t.Context(), "u1"))
			r.ExpectNothing()
		}))
	}
}

func TestNoPluginRunsIfItsDeviceInformationCannotBeWritten(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		difftest.Must(t, os.WriteFile(r.Options.DeviceInfoDir, nil, 0o600))
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`)))
		difftest.Says(t, r.RunPod(r.Sandbox("s1", "pod")), r.Options.DeviceInfoDir)
		r.ExpectCalls("ADD", 0)
	})
}
