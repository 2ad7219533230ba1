package dra_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/test/difftest"
)

func TestStatusIsSentUntilAPIServerAcceptsItAlsoAfterRestart(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		take := r.Options.Status
		r.Options.Status = func(context.Context, status.Report) error { return errors.New("connection refused") }
		r.Start()
		r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		dratest.WaitIdle()
		difftest.Equal(t, r.Agent.Census().PendingStatus, 1)
		r.Stop() // the options of a running agent must not change
		r.Options.Status = take
		r.Start()
		dratest.WaitIdle()
		difftest.Equal(t, r.Agent.Census().PendingStatus, 0)
		share, got := "share-u1x", r.LastReport()
		difftest.Same(t, "report", got, status.Report{Driver: dratest.Driver, Namespace: "ns", Name: "a", UID: "u1", Devices: []resourceapi.AllocatedDeviceStatus{{
			Driver: dratest.Driver, Pool: "node1", Device: "cni", ShareID: &share,
			Conditions:  []metav1.Condition{{Type: "Ready", Status: "True", Reason: "NetworkInterfaceReady", Message: "CNI-DRA-Driver has configured the device."}},
			NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: "02:00:00:00:00:01"},
		}}}, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime"), cmpopts.IgnoreFields(resourceapi.AllocatedDeviceStatus{}, "Data"))
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
			case down.Load() && report.Name == "bad":
				return errors.New("connection refused")
			}
			return nil
		}
		agent := r.Start()
		for _, name := range []string{"slow", "bad", "good", "gone"} {
			r.Prepare(r.ClaimOf(name, name, name, dratest.Net("x", "net1", "")))
			difftest.Must(t, r.RunPod(r.Sandbox(name, name)))
		}
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
			"good": {0}, "gone": {0}, "slow": {0, 30.5, 61.5},
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
			r.AttachPod(dratest.DeviceClaim("u1", test.device, test.parameters))
			dratest.WaitIdle()
			report := r.LastReport()
			if len(report.Devices) != 1 || report.Devices[0].Data == nil {
				t.Fatalf("%s: %+v", name, report)
			}
			var data map[string]view.Device
			_ = json.Unmarshal(report.Devices[0].Data.Raw, &data) // data also has the keys of the CNI result
			difftest.Same(t, name, data[view.Key], test.want)
			difftest.Same(t, name+": the status is pending", r.Record("u1").StatusOwed, false)
		})
	}
}

// useAPI makes the agent use an API server, which accepts each status.
func useAPI(r *dratest.Rig, client *fake.Clientset) {
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &resourceapi.ResourceClaim{}, nil
	})
	o := &r.Options
	o.Status = func(ctx context.Context, report status.Report) error { return status.Apply(ctx, client, report) }
	o.Read, o.List, o.Notify = dra.ReadClaim(client), dra.ListClaims(client), dra.PostNotices(client, dratest.Driver, "node1", o.Log)
}

// The driver watches its own slices. A claim from a template costs one GET and one PATCH. The driver sends no
// requests while nothing happens on the node.
func TestEachClaimNeedsOneReadAndOnePatch(t *testing.T) {
	t.Parallel()
	const claims = 10
	r, n := dratest.NewRig(t), dratest.NewNode(t, "mlx5-switchdev")
	r.UsePlugins()
	client := dratest.APIServer(nil)
	useAPI(r, client)
	var looks atomic.Int64
	o := &r.Options
	o.Devices.Inventory = n.Inventory()
	o.Devices.Inventory.Times.Poll = 10 * time.Millisecond
	netns := o.Netns
	o.Netns = func(path string) error { looks.Add(1); return netns(path) }
	r.StartKubelet(client, 0)
	asked := func() map[string]int {
		requests := map[string]int{}
		for _, a := range client.Actions() {
			requests[a.GetVerb()+" "+a.GetResource().Resource]++
		}
		return requests
	}
	difftest.Eventually(t, "the slices are published", func() bool { return asked()["create resourceslices"] == 2 })
	for i := range claims {
		name := fmt.Sprint("pod", i)
		claim := dratest.FromTemplate(r.ClaimOf(name, name, name, dratest.Net("x", "net1", "")))
		difftest.Must(t, client.Tracker().Add(claim))
		r.PrepareByKubelet(claim)
		difftest.Must(t, r.RunPod(r.Sandbox(name, name)))
	}
	difftest.Eventually(t, "each status is sent", func() bool { return asked()["patch resourceclaims"] >= claims })
	before := looks.Load()
	difftest.Eventually(t, "the worker has checked each claim many times", func() bool { return looks.Load() > before+20*claims })
	expected := map[string]int{
		"get nodes": 1, "list resourceslices": 1, "watch resourceslices": 1, "create resourceslices": 2,
		"get resourceclaims": claims, "patch resourceclaims": claims,
	}
	difftest.Same(t, "requests", asked(), expected)
}

// An unused permission helps only an attacker. A missing one shows in a cluster.
func TestRoleAllowsExactlyTheRequestsOfTheDriver(t *testing.T) {
	t.Parallel()
	made := dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`))
	client := dratest.APIServer(nil, made)
	r, n := dratest.NewRig(t), dratest.NewNode(t, "mlx5-switchdev")
	useAPI(r, client)
	r.UsePlugins()
	r.StartOffering(client, n)
	dratest.WaitDevices(t, client, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF2, dratest.VF3)
	n.Change(func() { n.Remove("enp3s0f0v2") }) // updates a slice
	dratest.WaitDevices(t, client, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF3)
	_, err := r.Options.List(t.Context(), "ns")
	difftest.Must(t, err)
	_, err = dra.ReadLabels(client, "node1")(t.Context())
	difftest.Must(t, err)
	r.Options.Notify(claim.Notice{Pod: state.Pod{Namespace: "ns", Name: "pod", UID: "uid-pod"}, Reason: claim.NoticeFailed})
	r.PrepareByKubelet(made)
	difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
	asked := func() map[string]bool {
		requests := map[string]bool{}
		for _, a := range client.Actions() {
			requests[a.GetVerb()+" "+strings.TrimSuffix(a.GetResource().Resource+"/"+a.GetSubresource(), "/")] = true
		}
		return requests
	}
	difftest.Eventually(t, "the status and the Event are sent", func() bool { return asked()["patch resourceclaims/status"] && asked()["create events"] })
	r.Stop()
	r.Agent, r.Withdraw = nil, true
	r.StartKubelet(client, 0)
	difftest.Eventually(t, "the slices are removed", func() bool { return asked()["delete resourceslices"] })
	allowed := map[string]bool{}
	for _, document := range strings.Split(difftest.Read(t, "../../deploy/cni-dra-driver/rbac.yaml"), "\n---\n") {
		var role rbacv1.ClusterRole
		difftest.Must(t, yaml.Unmarshal([]byte(document), &role))
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				allowed[verb+" "+rule.Resources[0]] = true
			}
		}
	}
	delete(allowed, "associated-node:patch resourceclaims/driver") // the API server checks it when the driver patches a status
	difftest.Same(t, "permissions", allowed, asked())
}
