package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/test/difftest"
)

// A vDPA device and an interface may have the same name.
func TestInspectPrefersDeviceOfABus(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host.txtar")
	text := regexp.MustCompile(`\b(vdpa0|eth0)\b`).ReplaceAllString(difftest.Read(t, hosts+"vdpa-sim.txtar"), "same0")
	difftest.Write(t, host, text, 0o644)
	const fact = "vdpa.parent-device  same0              /sys/bus/vdpa/devices/same0"
	if o := ctl("--capture", host, "inspect", "same0"); o.exit != 0 || !strings.Contains(o.stdout, fact) {
		t.Errorf("%+v; want %q in it", o, fact)
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
