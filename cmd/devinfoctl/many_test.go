package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/check/checktest"
	"devinfo-cni.io/pkg/ctl/remedy"
	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/journal"
)

// BenchmarkCrowded has people ask a node of 10,000 attachments.
func BenchmarkCrowded(b *testing.B) {
	const gate = 2 * time.Second
	dir, err := os.MkdirTemp("/dev/shm", "crowded") // tmpfs, as /run is
	if err != nil {
		dir = b.TempDir()
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	n := newNodeIn(b, dir, filepath.Join(dir, "sys"))
	n.must(hosttxttest.ManyVFs(1000).Unpack(n.Sysfs))
	boot, err := journal.BootID()
	n.must(err)
	n.must(checktest.Crowd(journal.Open(n.StateDir, boot), n.DeviceInfoDir, aliveNetns, 1000, 10000))
	for name, args := range map[string]string{
		"doctor": "doctor --cni-path " + n.bin + " --cni-conf-dir " + n.bin + " --pod-resources /nowhere --sriov-locks /nowhere",
		"check":  "check", "list": "list", "pod": "check ns/pod7",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if o := ctl(append([]string{"--node-config", n.file}, strings.Fields(args)...)...); o.exit == remedy.Blind {
					b.Fatal(o.stderr)
				}
			}
			if each := b.Elapsed() / time.Duration(b.N); each > gate {
				b.Errorf("%v, more than %v", each, gate)
			}
		})
	}
}
