package dra_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containernetworking/cni/libcni"
	resourceapi "k8s.io/api/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

// comparison has the durations of an operation of the driver and of another one, measured in turn.
type comparison struct{ ours, theirs []time.Duration }

// report reports a quantile of both. It fails the benchmark if ours exceeds limit(theirs) in enough measurements.
func (c comparison) report(b *testing.B, percent, enough int, limit func(theirs time.Duration) time.Duration) {
	b.Helper()
	ours, theirs := quantile(c.ours, percent), quantile(c.theirs, percent)
	of := fmt.Sprint("-p", percent)
	b.ReportMetric(float64(ours)/1e6, "ms"+of)
	b.ReportMetric(float64(theirs)/1e6, "bare-ms"+of)
	b.ReportMetric(float64(ours)/float64(theirs), "ratio"+of)
	if most := limit(theirs); len(c.ours) >= enough && ours > most {
		b.Errorf("it takes %v at p%d, more than %v; the other operation takes %v", ours, percent, most, theirs)
	}
}

// slower returns a limit that is 15 % and more above the other duration.
func slower(more time.Duration) func(time.Duration) time.Duration {
	return func(theirs time.Duration) time.Duration { return theirs + theirs*15/100 + more }
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// benchClaim returns the n-th claim, of the n-th pod, from a template.
func benchClaim(r *dratest.Rig, n int) *resourceapi.ResourceClaim {
	return dratest.FromTemplate(r.ClaimOf(fmt.Sprint("claim", n), fmt.Sprint("u", n), fmt.Sprint("pod", n), dratest.Net("x", "net1", "")))
}

// bareNetwork returns libcni and the network of the rig's claims.
func bareNetwork(r *dratest.Rig) (*libcni.CNIConfig, *libcni.NetworkConfigList) {
	list, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"fake","dir":%q,"capabilities":{"CNIDeviceInfoFile":true}}]}`, r.Dir))
	difftest.Must(r.T, err)
	return libcni.NewCNIConfigWithCacheDir(r.Options.CNIBinDirs, filepath.Join(r.Dir, "bare"), nil), list
}

// BenchmarkAHundredPodsAtOnce compares how long a hundred pods wait that start at the same time with a hundred bare ADDs by
// libcni. Pods could share the claims, so the driver reads each pod from the API server.
func BenchmarkAHundredPodsAtOnce(b *testing.B) {
	const pods = 100
	r := benchRig(b)
	var listed []resourceapi.ResourceClaim
	for n := range pods {
		claim := benchClaim(r, n)
		claim.OwnerReferences = nil
		listed = append(listed, *claim)
	}
	r.Options.ClaimsOf = func(context.Context, state.Pod) ([]string, error) { return nil, nil }
	agent := r.Start()
	bare, list := bareNetwork(r)
	each := func(f func(n int) error) []time.Duration {
		took := make([]time.Duration, pods)
		var group sync.WaitGroup
		for n := range pods {
			group.Go(func() { took[n] = timed(func() { dratest.NoError(b, f(n)) }) })
		}
		group.Wait()
		return took
	}
	var all comparison
	for b.Loop() {
		for n := range pods {
			r.Prepare(&listed[n])
		}
		sandbox := func(n int) *api.PodSandbox { return r.Sandbox(fmt.Sprint("s", n), fmt.Sprint("pod", n)) }
		all.ours = append(all.ours, each(func(n int) error { return agent.RunPodSandbox(b.Context(), sandbox(n)) })...)
		each(func(n int) error { return agent.StopPodSandbox(b.Context(), sandbox(n)) })
		each(func(n int) error { return agent.Unprepare(b.Context(), fmt.Sprint("u", n)) })
		rt := func(n int) *libcni.RuntimeConf {
			return &libcni.RuntimeConf{ContainerID: fmt.Sprint("bare", n), NetNS: filepath.Join(r.Dir, "netns", "s0"), IfName: "net1"}
		}
		all.theirs = append(all.theirs, each(func(n int) error { _, err := bare.AddNetworkList(b.Context(), list, rt(n)); return err })...)
		each(func(n int) error { return bare.DelNetworkList(b.Context(), list, rt(n)) })
	}
	all.report(b, 99, 3*pods, func(theirs time.Duration) time.Duration { return theirs * 3 / 2 })
}

// BenchmarkPrepare prepares one more claim, of a VF, on a node with 1,024 VFs and 500 claims, and compares it with the one
// durable write that it needs.
func BenchmarkPrepare(b *testing.B) {
	const prepared, heapGate = 500, 8 // KiB
	r := benchRig(b)
	host, err := inventory.Captured(capturetest.ManyVFs(1024))
	difftest.Must(b, err)
	r.Options.Devices.Inventory = dratest.InventoryOf(host, allVFs)
	agent := r.Start()
	dratest.Survey(agent)
	devices, _, err := inventory.Read(host)
	difftest.Must(b, err)
	before := heap()
	for n := range prepared {
		r.Prepare(benchClaim(r, n))
	}
	each := float64(heap()-before) / prepared / 1024
	disk := store.Durable(filepath.Join(r.Dir, "bare"))
	difftest.Must(b, disk.Make())
	claim := dratest.DeviceClaim("vf", devices[len(devices)-1].Name, `"device":[],`+dratest.Network(`{"type":"fake"}`))
	var all comparison
	for b.Loop() {
		all.ours = append(all.ours, timed(func() { r.Prepare(claim) }))
		record, err := os.ReadFile(filepath.Join(r.Options.StateDir, "vf.json"))
		difftest.Must(b, err, agent.Unprepare(b.Context(), "vf"))
		all.theirs = append(all.theirs, timed(func() { difftest.Must(b, disk.Write("vf.json", record)) }))
		difftest.Must(b, disk.Remove("vf.json"))
	}
	b.ReportMetric(each, "KiB/claim") // after the loop, because the loop resets reported metrics
	all.report(b, 50, 100, slower(2*time.Millisecond))
	if each > heapGate {
		b.Errorf("a claim takes %.1f KiB of the heap, more than %d", each, heapGate)
	}
}

// benchRig returns a rig with the default intervals and without instruments.
func benchRig(b *testing.B) *dratest.Rig {
	r := dratest.NewRig(b)
	r.Measured = true
	r.Options.Log, r.Options.Sweep, r.Options.DelMinRetryTime = slog.New(slog.DiscardHandler), 0, 0
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

// allVFs is a rule that offers all VFs.
const allVFs = "devices:\n- select: device.attributes['devinfo-cni.io'].kind == 'vf'\n  sharing: exclusive\n"

// BenchmarkPrepareWithMetadata compares Prepare with and without metadata. KEP-5304 allows 10 ms more.
func BenchmarkPrepareWithMetadata(b *testing.B) {
	start := func(noMetadata bool) (prepare func() time.Duration) {
		r := benchRig(b)
		r.NoMetadata = noMetadata
		claim := benchClaim(r, 0)
		r.StartKubelet(dratest.APIServer(nil, claim), 0)
		plugin, references := dratest.CallAsKubelet(r, []*resourceapi.ResourceClaim{claim})
		return func() time.Duration {
			took := timed(func() {
				answer, err := plugin.NodePrepareResources(b.Context(), &drapb.NodePrepareResourcesRequest{Claims: references})
				difftest.Must(b, err)
				difftest.Same(b, "error", answer.Claims[string(claim.UID)].GetError(), "")
			})
			_, err := plugin.NodeUnprepareResources(b.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: references})
			difftest.Must(b, err)
			return took
		}
	}
	with, without := start(false), start(true)
	var all comparison
	for b.Loop() {
		all.ours, all.theirs = append(all.ours, with()), append(all.theirs, without())
	}
	all.report(b, 50, 100, func(without time.Duration) time.Duration { return without + 10*time.Millisecond })
}
