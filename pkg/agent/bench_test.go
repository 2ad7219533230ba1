package agent_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/pkg/check/checktest"
	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/journal"
)

// BenchmarkCrowd is the first sweep, and look at the attachments, of an agent on a node that has
// 10,000 of them.
func BenchmarkCrowd(b *testing.B) {
	const gate = 3 * time.Second
	r := newRig(b)
	r.CheckInterval, r.SweepInterval, r.LookInterval = 5*time.Second, time.Hour, time.Hour // the first as the program has it
	r.must(os.RemoveAll(r.Sysfs), hosttxttest.ManyVFs(1000).Unpack(r.Sysfs))
	r.must(checktest.Crowd(journal.Open(r.StateDir, boot), r.DeviceInfoDir, aliveNetns, 1000, 10000))
	var used time.Duration
	for b.Loop() {
		before := processorTime(b)
		a, end := r.started()
		eventually(b, "swept and looked", func() bool { return well(a) })
		end()
		used += processorTime(b) - before
	}
	used /= time.Duration(b.N)
	b.ReportMetric(used.Seconds(), "cpu-s/op")
	if used > gate {
		b.Errorf("%v of processor time, more than %v", used, gate)
	}
}

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
