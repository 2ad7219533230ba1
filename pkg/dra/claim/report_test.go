package claim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func TestStatusIsSentUntilAPIServerAcceptsItAlsoAfterRestart(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		take := r.Options.Status
		r.Options.Status = func(context.Context, status.Report) error { return errors.New("connection refused") }
		r.Start()
		r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		attached := metav1.NewTime(time.Now())
		time.Sleep(time.Minute)
		difftest.Equal(t, r.Agent.Census().PendingStatus, 1)
		r.Stop() // the options of a running agent must not change
		r.Options.Status = take
		r.Start()
		dratest.WaitIdle()
		difftest.Equal(t, r.Agent.Census().PendingStatus, 0)
		share, got := "share-u1x", r.LastReport()
		difftest.Same(t, "report", got, status.Report{Driver: dratest.Driver, Namespace: "ns", Name: "a", UID: "u1", Devices: []resourceapi.AllocatedDeviceStatus{{
			Driver: dratest.Driver, Pool: "node1", Device: "cni", ShareID: &share,
			Conditions:  []metav1.Condition{{Type: "Ready", Status: "True", Reason: "NetworkInterfaceReady", Message: "CNI-DRA-Driver has configured the device.", LastTransitionTime: attached}},
			NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: "02:00:00:00:00:01", IPs: []string{"10.0.0.2/24"}},
		}}}, cmpopts.IgnoreFields(resourceapi.AllocatedDeviceStatus{}, "Data"))
		difftest.Contains(t, string(got.Devices[0].Data.Raw), `"cniVersion":"1.0.0"`)
	})
}

// A status that the API server rejects, or accepts slowly, must not delay the status of other claims. A status
// that can never succeed is dropped.
func TestEachClaimStatusHasItsOwnBackOff(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		var mu sync.Mutex
		sent := map[string][]float64{}
		var down atomic.Bool
		down.Store(true)
		began := time.Now()
		r.Options.Status = func(ctx context.Context, report status.Report) error {
			mu.Lock()
			sent[report.Name] = append(sent[report.Name], time.Since(began).Seconds())
			mu.Unlock()
			switch {
			case report.Name == "slow":
				<-ctx.Done()
				return ctx.Err()
			case report.Name == "gone":
				return status.ErrGone
			case down.Load() && (report.Name == "bad" || report.Name == "ended"):
				return errors.New("connection refused")
			}
			return nil
		}
		agent := r.Start()
		for _, name := range []string{"slow", "bad", "good", "gone"} {
			r.Prepare(r.ClaimOf(name, name, name, dratest.Net("x", "net1", "")))
			difftest.Must(t, r.RunPod(r.Sandbox(name, name)))
		}
		r.Prepare(r.ClaimOf("ended", "ended", "ended", dratest.Net("x", "net1", "")))
		sb := r.RunSandbox("ended", "ended")
		synctest.Wait() // until its status was sent
		r.EndPod(sb)    // no device has a status then
		time.Sleep(1000 * time.Second)
		down.Store(false)
		time.Sleep(300 * time.Second)
		if now := agent.Census(); now.PendingStatus != 1 || now.Phases["Added"] != 4 { // the status of claim slow
			t.Errorf("got %v", now)
		}
		down.Store(true)
		difftest.Must(t, r.RunPod(r.Sandbox("again", "bad"))) // a new status starts a new back-off
		time.Sleep(time.Second)
		difftest.Must(t, r.RunPod(r.Sandbox("third", "bad"))) // sent immediately, despite the back-off
		dratest.WaitIdle()
		r.Unprepare("bad") // the status of a removed claim is not sent
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		want := map[string][]float64{
			"bad":  {0, .5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 127.5, 255.5, 511.5, 811.5, 1111.5, 1300, 1300.5, 1301},
			"good": {0}, "gone": {0}, "ended": {0}, "slow": {0, 30.5, 61.5},
		}
		sent["slow"] = sent["slow"][:min(3, len(sent["slow"]))]
		difftest.Equal(t, sent, want)
	})
}

// The API server may have accepted a status that is already out of date.
func TestStatusThatChangesDuringSendIsSentAgain(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		var sent atomic.Int32
		r.Options.Status = func(_ context.Context, report status.Report) error {
			if report.Name == "0" {
				sent.Add(1)
			}
			time.Sleep(time.Second)
			return nil
		}
		r.Start()
		for n := range 9 { // four are sent at a time
			name := fmt.Sprint(n)
			r.Prepare(r.ClaimOf(name, name, name, dratest.Net("x", "net1", "")))
			difftest.Must(t, r.RunPod(r.Sandbox(name, name)))
		}
		time.Sleep(time.Second / 2)
		difftest.Must(t, r.RunPod(r.Sandbox("again", "0")))
		time.Sleep(time.Minute)
		difftest.Same(t, "times that it is sent", sent.Load(), int32(2))
	})
}

// Readers of the status need not read ResourceSlices.
func TestStatusShowsDeviceOfClaim(t *testing.T) {
	vf := view.Device{Type: "pci", Device: "0000:03:00.2", PF: "0000:03:00.0", Representor: "eth4", RDMA: "mlx5_2"}
	for name, test := range map[string]struct {
		device, parameters string
		want               view.Device
	}{
		"a VF":              {dratest.VF0, dratest.Network(`{"type":"sriov"}`), vf},
		"without a network": {dratest.VF3, "", view.Device{Type: "pci", Device: "0000:03:00.5", PF: "0000:03:00.0", Representor: "eth7"}},
		"an SF":             {dratest.SF4, dratest.Network(`{"type":"host-device","capabilities":{"deviceID":true}}`), view.Device{PF: "0000:03:00.0", Representor: "en3f0pf0sf88", RDMA: "mlx5_7"}},
		"shared":            {dratest.PF, dratest.Network(`{"type":"macvlan"}`), view.Device{Type: "pci", Device: "0000:03:00.0", RDMA: "mlx5_0"}},
	} {
		dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
			r.Prepare(dratest.DeviceClaim("u1", test.device, test.parameters))
			for id, hook := range map[string]func(command, sandbox, ifName string) error{"attached": nil, "failed": dratest.Fail("ADD", "")} {
				r.Plugins.SetHook(hook)
				sb := r.Sandbox(id, "pod")
				difftest.Same(t, name+": ADD fails", r.RunPod(sb) != nil, hook != nil && test.parameters != "")
				dratest.WaitIdle()
				report := r.LastReport()
				if len(report.Devices) != 1 || report.Devices[0].Data == nil {
					t.Fatalf("%s, %s: %+v", name, id, report)
				}
				var data map[string]view.Device
				_ = json.Unmarshal(report.Devices[0].Data.Raw, &data) // data also has the keys of the CNI result
				difftest.Same(t, name+", "+id, data[view.Key], test.want)
				difftest.Same(t, name+": the status is pending", r.Record("u1").StatusOwed, false)
				r.EndPod(sb)
			}
		})
	}
}

func TestMetricsShowStateAndCalls(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Offer("igb-sriov", "devices: [{ifNames: [eth77], sharing: exclusive}]").OthersError = errors.New("no answer")
		r.Options.Status = func(context.Context, status.Report) error { return errors.New("no answer") }
		agent := r.Start()
		agent.SetConnected(nil)
		r.ListSandboxes()
		dratest.Survey(agent)
		r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")), r.ClaimOf("b", "u2", "other", dratest.Net("x", "net1", "")), r.ClaimOf("c", "u3", "third", dratest.Net("x", "net1", "")))
		third := r.RunSandbox("s3", "third")
		difftest.Must(t, createContainer(r, third))
		r.EndPod(third)
		r.Unprepare("u3")
		r.Plugins.SetHook(dratest.Fail("", "s2"))
		difftest.Says(t, r.RunPod(r.Sandbox("s2", "other")), dratest.ErrNoMaster.Error())
		r.EndPod(r.Sandbox("s2", "other"))
		dratest.WaitIdle()
		var all strings.Builder
		samples := r.Samples()
		for _, name := range slices.Sorted(maps.Keys(samples)) {
			fmt.Fprintf(&all, "%s: %v\n", name, samples[name])
		}
		goldentest.File(t, "testdata/metrics.txt", all.String())
	})
}

// The address may be another pod's already while the plugins of the next sandbox run.
func TestStatusOfFormerSandboxEndsWithNextADD(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		sb := r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "1m")))
		time.Sleep(2 * time.Minute)
		difftest.Equal(t, r.LastReport().Devices[0].Conditions[0].Status, metav1.ConditionTrue)
		r.EndPod(sb)
		next := r.RunSandbox("s2", "pod")
		time.Sleep(30 * time.Second)
		report := r.LastReport().Devices[0]
		difftest.Equal(t, report.NetworkData, (*resourceapi.NetworkDeviceData)(nil))
		difftest.Equal(t, report.Conditions[0].Status, metav1.ConditionFalse)
		time.Sleep(time.Minute)
		difftest.Equal(t, r.LastReport().Devices[0].Conditions[0].Status, metav1.ConditionTrue)
		r.EndAndUnprepare(next, "u1")
	})
}
