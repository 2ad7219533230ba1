package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/capturefile/capturetest"
	"devinfo-cni.io/pkg/ctl/clierr"
	"devinfo-cni.io/pkg/difftest"
)

func TestInspectOfCapturedHosts(t *testing.T) {
	for _, c := range []struct{ name, host, args string }{
		{"vf", "mlx5-switchdev", "0000:03:00.2"},
		{"vf-short", "mlx5-switchdev", "03:00.2"},
		{"vf-json", "mlx5-switchdev", "0000:03:00.2 -o json"},
		{"vf-yaml", "mlx5-switchdev", "0000:03:00.2 -o yaml"},
		{"vf-interface", "mlx5-legacy", "net1 --netns /run/netns/pod"},
		{"rdma", "mlx5-switchdev", "mlx5_4"},
		{"rdma-rxe", "rxe-rdma", "rxe0"},
		{"vf-vfio", "igb-sriov", "0000:01:10.6"},
		{"vf-vm", "virtio-vm", "0000:00:06.0"},
		{"pf-interface", "i40e", "eno1"},
		{"sf", "mlx5-switchdev", "mlx5_core.sf.4"},
		{"sf-parent", "mlx5-switchdev", "mlx5_core.sf.4 --subfunction-parent -o json"},
		{"vdpa-vhost", "vdpa-sim", "vdpa0"},
		{"vdpa-virtio", "vdpa-vf-virtio", "vpvdpa0 -o yaml"},
		{"vdpa-interface", "mlx5-vdpa", "eth12 -o json"},
		{"vdpa-unbound", "mlx5-vdpa", "vdpa5"},
		{"macvlan", "i40e", "net1 --netns /run/netns/pod"},
		{"macvlan-alone", "i40e", "net1 --netns /run/netns/pod --follow-lower=false"},
		{"representor", "mlx5-switchdev", "eth4 --follow-lower=false"},
		{"veth", "mlx5-legacy", "eth0 --netns pod"},
		{"unlike-any", "i40e", "nope"},
		{"vmd", "vmd", "10000:e1:00.0"},
		{"unknown", "mlx5-switchdev", "enp3s0f0v9"},
		{"unknown-address", "mlx5-switchdev", "0000:03:00.9"},
		{"unknown-in-netns", "i40e", "net7 --netns /run/netns/pod"},
		{"no-pod", "vdpa-sim", "net1 --netns /run/netns/pod"},
		{"as-what", "i40e", "eno1 --as netdev"},
		{"as-other", "i40e", "eno1 --as vdpa"},
		{"netns-and-as", "i40e", "eno1 --as vdpa --netns /run/netns/pod"},
	} {
		t.Run(c.name, func(t *testing.T) {
			golden(t, "inspect-"+c.name, append([]string{"--capture", hosts + c.host + ".txtar", "inspect"}, strings.Fields(c.args)...)...)
		})
	}
}

// A vDPA device and an interface may have the same name.
func TestInspectRefusesAmbiguousName(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host.txtar")
	text := regexp.MustCompile(`\b(vdpa0|eth0)\b`).ReplaceAllString(difftest.Read(t, hosts+"vdpa-sim.txtar"), "same0")
	difftest.Write(t, host, text, 0o644)
	equal(t, "inspect", ctl("--capture", host, "inspect", "same0").seen(), fmt.Sprintf(
		"! devinfoctl: same0 is the name of several devices\n!   choose one: --as vdpa, or --as interface\nexit %d\n", clierr.Usage))
	for as, fact := range map[string]string{
		"vdpa":      "vdpa.parent-device  same0              /sys/bus/vdpa/devices/same0",
		"interface": "pci.pci-address  0000:02:00.0  interface same0 (netlink)",
	} {
		if o := ctl("--capture", host, "inspect", "same0", "--as", as); o.exit != 0 || !strings.Contains(o.stdout, fact) {
			t.Errorf("--as %s: %+v; want %q in it", as, o, fact)
		}
	}
}

func TestTopologyOfCapturedHosts(t *testing.T) {
	for _, name := range capturetest.Names(t) {
		t.Run(name, func(t *testing.T) {
			golden(t, "topology-"+name, "--capture", hosts+name+".txtar", "topology")
		})
	}
	for _, format := range []string{"table", "json", "yaml"} {
		t.Run(format, func(t *testing.T) {
			golden(t, "topology-node-"+format, "--capture", "testdata/node.txtar", "topology", "-o", format)
		})
	}
}
