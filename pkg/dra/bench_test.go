package dra_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containernetworking/cni/libcni"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/private"
)

// BenchmarkRunPodSandbox compares, turn by turn, the attachment of a pod with a bare
// ADD by libcni of the same network. "ratio" is of the medians, "over-ms" their
// difference.
func BenchmarkRunPodSandbox(b *testing.B) {
	r := benchRig(b)
	agent := r.start()
	list, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"fake","dir":%q,"capabilities":{"CNIDeviceInfoFile":true}}]}`, r.dir))
	must(b, err)
	bare := libcni.NewCNIConfigWithCacheDir(r.options.CNIBinDirs, filepath.Join(r.dir, "bare"), nil)
	var ours, theirs []time.Duration
	n := 0
	for b.Loop() {
		n++
		pod, uid := fmt.Sprint("pod", n), types.UID(fmt.Sprint("u", n))
		r.prepare(r.claimOf("claim", uid, pod, want{"x", "net1", ""}))
		sb := r.sandbox(fmt.Sprint("s", n), pod)
		began := time.Now()
		must(b, agent.RunPodSandbox(b.Context(), sb))
		ours = append(ours, time.Since(began))
		must(b, agent.StopPodSandbox(b.Context(), sb))
		must(b, agent.Unprepare(b.Context(), uid))
		rt := &libcni.RuntimeConf{ContainerID: fmt.Sprint("bare", n), NetNS: filepath.Join(r.dir, "netns", sb.Id), IfName: "net1"}
		began = time.Now()
		_, err := bare.AddNetworkList(context.Background(), list, rt)
		must(b, err)
		theirs = append(theirs, time.Since(began))
		must(b, bare.DelNetworkList(context.Background(), list, rt))
	}
	a, c := quantile(ours, 50), quantile(theirs, 50)
	b.ReportMetric(float64(a)/float64(c), "ratio")
	b.ReportMetric(float64(a-c)/1e6, "over-ms")
	b.ReportMetric(float64(c)/1e6, "bare-ms")
	if gate := c + c*15/100 + 5*time.Millisecond; n >= 100 && a > gate {
		b.Errorf("RunPodSandbox takes %v, more than 1.15 times a bare ADD and 5 ms: %v", a, gate)
	}
}

// BenchmarkAHundredPodsAtOnce compares how long pods wait that start at the same time with
// as many bare ADDs by libcni.
func BenchmarkAHundredPodsAtOnce(b *testing.B) {
	const pods = 100
	r := benchRig(b)
	agent := r.start()
	list, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"fake","dir":%q}]}`, r.dir))
	must(b, err)
	bare := libcni.NewCNIConfigWithCacheDir(r.options.CNIBinDirs, filepath.Join(r.dir, "bare"), nil)
	all := func(f func(n int) error) (took []time.Duration) {
		took = make([]time.Duration, pods)
		var group sync.WaitGroup
		for n := range pods {
			group.Go(func() {
				began := time.Now()
				if err := f(n); err != nil {
					b.Error(err)
				}
				took[n] = time.Since(began)
			})
		}
		group.Wait()
		return took
	}
	var ours, theirs []time.Duration
	for b.Loop() {
		for n := range pods {
			r.prepare(r.claimOf("claim", types.UID(fmt.Sprint("u", n)), fmt.Sprint("pod", n), want{"x", "net1", ""}))
		}
		sandbox := func(n int) *api.PodSandbox { return r.sandbox(fmt.Sprint("s", n), fmt.Sprint("pod", n)) }
		ours = append(ours, all(func(n int) error { return agent.RunPodSandbox(b.Context(), sandbox(n)) })...)
		all(func(n int) error { return agent.StopPodSandbox(b.Context(), sandbox(n)) })
		all(func(n int) error { return agent.Unprepare(b.Context(), types.UID(fmt.Sprint("u", n))) })
		rt := func(n int) *libcni.RuntimeConf {
			return &libcni.RuntimeConf{ContainerID: fmt.Sprint("bare", n), NetNS: filepath.Join(r.dir, "netns/s0"), IfName: "net1"}
		}
		theirs = append(theirs, all(func(n int) error { _, err := bare.AddNetworkList(b.Context(), list, rt(n)); return err })...)
		all(func(n int) error { return bare.DelNetworkList(b.Context(), list, rt(n)) })
	}
	a, c := quantile(ours, 99), quantile(theirs, 99)
	b.ReportMetric(float64(a)/float64(c), "p99-ratio")
	b.ReportMetric(float64(a)/1e6, "p99-ms")
	b.ReportMetric(float64(c)/1e6, "bare-p99-ms")
	if gate := c * 3 / 2; len(ours) >= 3*pods && a > gate {
		b.Errorf("a pod waits for %v, more than 1.5 times as long as for a bare ADD: %v", a, gate)
	}
}

// BenchmarkPrepare is one more claim on a node of 500. It is compared, turn by turn, with
// the one durable write that it cannot do without: "over-ms" is the difference of the medians.
func BenchmarkPrepare(b *testing.B) {
	const prepared, heapGate = 500, 8 // KiB
	r := benchRig(b)
	agent := r.start()
	before := heap()
	for n := range prepared {
		r.prepare(r.claimOf("claim", types.UID(fmt.Sprint("u", n)), fmt.Sprint("pod", n), want{"x", "net1", ""}))
	}
	each := float64(heap()-before) / prepared / 1024
	var took, bare []time.Duration
	disk := private.OpenDurable(filepath.Join(r.dir, "bare"))
	must(b, disk.Make())
	n := prepared
	for b.Loop() {
		n++
		uid := types.UID(fmt.Sprint("u", n))
		claim := r.claimOf("claim", uid, fmt.Sprint("pod", n), want{"x", "net1", ""})
		began := time.Now()
		_, err := agent.Prepare(b.Context(), claim)
		took = append(took, time.Since(began))
		must(b, err)
		record, err := os.ReadFile(filepath.Join(r.options.StateDir, string(uid)+".json"))
		must(b, err)
		must(b, agent.Unprepare(b.Context(), uid))
		began = time.Now()
		must(b, disk.Write(string(uid), record))
		bare = append(bare, time.Since(began))
		must(b, disk.Remove(string(uid)))
	}
	b.ReportMetric(each, "KiB/claim") // after the loop, which resets what was reported
	b.ReportMetric(float64(quantile(took, 50))/1e6, "p50-ms")
	b.ReportMetric(float64(quantile(took, 99))/1e6, "p99-ms")
	a, c := quantile(took, 50), quantile(bare, 50)
	b.ReportMetric(float64(a-c)/1e6, "over-ms")
	if gate := c + c*15/100 + 2*time.Millisecond; len(took) >= 100 && a > gate {
		b.Errorf("Prepare takes %v, more than 1.15 times a durable write and 2 ms: %v", a, gate)
	}
	if each > heapGate {
		b.Errorf("a claim takes %.1f KiB of the heap, more than %d", each, heapGate)
	}
}

// BenchmarkForeignPod is what a pod without claims costs on a node of 500.
func BenchmarkForeignPod(b *testing.B) {
	r := benchRig(b)
	agent := r.start()
	for n := range 500 {
		r.prepare(r.claimOf("claim", types.UID(fmt.Sprint("u", n)), fmt.Sprint("pod", n), want{"x", "net1", ""}))
	}
	sb := r.sandbox("s1", "nobody's")
	for b.Loop() {
		must(b, agent.RunPodSandbox(b.Context(), sb))
		must(b, agent.StopPodSandbox(b.Context(), sb))
	}
}

// benchRig has the times that an agent has in life.
func benchRig(b *testing.B) *rig {
	r := newRig(b)
	r.options.Log, r.options.Sweep, r.options.DelPatience = nil, 0, 0
	return r
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func quantile(list []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}
