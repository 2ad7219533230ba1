package dra_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/inventory"
)

// BenchmarkPrepareOfAVF compares, turn by turn, a claim of a VF with one of a network of
// software alone, on a node of 1,024 VFs.
func BenchmarkPrepareOfAVF(b *testing.B) {
	r := benchRig(b)
	host, err := inventory.Captured(hosttxttest.ManyVFs(1024))
	must(b, err)
	r.options.Inventory = allVFs(b, host)
	agent := r.start()
	dra.Survey(agent)
	devices, _, err := inventory.Read(host)
	must(b, err)
	free := devices[len(devices)-1].Name
	var ours, theirs []time.Duration
	prepare := func(uid types.UID, device string) time.Duration {
		claim := ownClaim(uid, device, `"device":[],`+network(`{"type":"fake"}`))
		if device == "cni" {
			claim = ownClaim(uid, device, network(`{"type":"fake"}`))
		}
		began := time.Now()
		_, err := agent.Prepare(context.Background(), claim)
		took := time.Since(began)
		must(b, err)
		must(b, agent.Unprepare(context.Background(), uid))
		return took
	}
	for b.Loop() {
		ours, theirs = append(ours, prepare("u1", free)), append(theirs, prepare("u2", "cni"))
	}
	a, c := quantile(ours, 50), quantile(theirs, 50)
	b.ReportMetric(float64(quantile(ours, 99))/1e6, "p99-ms")
	b.ReportMetric(float64(quantile(theirs, 99))/1e6, "software-p99-ms")
	b.ReportMetric(float64(a-c)/1e6, "over-ms")
	if gate := c + c*15/100 + 2*time.Millisecond; len(ours) >= 100 && a > gate {
		b.Errorf("Prepare of a VF takes %v, more than 1.15 times that of a network and 2 ms: %v", a, gate)
	}
}

// allVFs offers them all.
func allVFs(b *testing.B, host inventory.Host) *dra.Inventory {
	b.Helper()
	rules, err := inventory.ParseRules([]byte("devices:\n- select: device.attributes['devinfo-cni.io'].kind == 'vf'\n  as: exclusive\n"))
	must(b, err)
	return &dra.Inventory{Rules: rules, Times: inventory.DefaultTimes(), Lineage: host.Sys.Lineage, Host: func() (inventory.Host, error) { return host, nil }}
}

// BenchmarkFromEventToSlice is the time from a uevent, on a node of 1,024 VFs, to the
// ResourceSlice at the API server. The second in which events are gathered is in it.
func BenchmarkFromEventToSlice(b *testing.B) {
	host, err := inventory.Captured(hosttxttest.ManyVFs(1024))
	must(b, err)
	offered, events, written := allVFs(b, host), make(chan struct{}, 1), make(chan struct{}, 100)
	var taken atomic.Pointer[map[string]string]
	taken.Store(new(map[string]string))
	offered.Others = func(context.Context) (map[string]string, error) { return *taken.Load(), nil }
	offered.Events = func(context.Context) (<-chan struct{}, error) { return events, nil }
	client := server(func(*resourceapi.ResourceSlice) { written <- struct{}{} })
	kubeletOf(b, client, 0, func(o *dra.Options) { o.Inventory, o.Log = offered, nil })
	quiet := func() {
		for {
			select {
			case <-written:
			case <-time.After(3 * time.Second): // longer than events are gathered
				return
			}
		}
	}
	<-written
	quiet()
	var took []time.Duration
	for b.Loop() {
		others := map[string]string{}
		if len(took)%2 == 0 {
			others["0000:3b:00.2"] = "somebody has it"
		}
		taken.Store(&others)
		began := time.Now()
		events <- struct{}{}
		<-written
		took = append(took, time.Since(began))
		quiet()
	}
	a := quantile(took, 50)
	b.ReportMetric(float64(a)/1e6, "event-to-slice-ms")
	if gate := inventory.DefaultTimes().Settle + time.Second; len(took) >= 5 && a > gate {
		b.Errorf("a change is in the slices after %v, more than %v", a, gate)
	}
}
