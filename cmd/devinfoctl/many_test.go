package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/pkg/check/checktest"
	"devinfo-cni.io/pkg/ctl/remedy"
	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/journal"
)

// crowded is a node of that many VFs and attachments, on tmpfs as /run is.
func crowded(t testing.TB, vfs, attachments int) *liveNode {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "crowded")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := newNodeIn(t, dir, filepath.Join(dir, "sys"))
	n.must(hosttxttest.ManyVFs(vfs).Unpack(n.Sysfs))
	boot, err := journal.BootID()
	n.must(err)
	n.must(checktest.Crowd(journal.Open(n.StateDir, boot), n.DeviceInfoDir, aliveNetns, vfs, attachments))
	return n
}

// BenchmarkCrowded has people ask a node of 10,000 attachments.
func BenchmarkCrowded(b *testing.B) {
	const gate = 2 * time.Second
	n := crowded(b, 1000, 10000)
	for name, args := range map[string]string{
		"doctor": "doctor --cni-path " + n.bin + " --cni-conf-dir " + n.bin + " --pod-resources /nowhere --sriov-locks /nowhere",
		"check":  "check", "list": "list", "pod": "check ns/pod7",
	} {
		b.Run(name, func(b *testing.B) {
			before := processorTime(b)
			for b.Loop() {
				if o := ctl(append([]string{"--node-config", n.file}, strings.Fields(args)...)...); o.exit == remedy.Blind {
					b.Fatal(o.stderr)
				}
			}
			b.ReportMetric((processorTime(b)-before).Seconds()/float64(b.N), "cpu-s/op")
			if each := b.Elapsed() / time.Duration(b.N); each > gate {
				b.Errorf("%v, more than %v", each, gate)
			}
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
