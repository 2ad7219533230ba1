package devices_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	clienttesting "k8s.io/client-go/testing"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/test/difftest"
)

func TestMain(m *testing.M) { dratest.Main(m) }

// dropSharingFields removes the fields that servers without DRAConsumableCapacity do not know.
func dropSharingFields(slice *resourceapi.ResourceSlice) {
	for n := range slice.Spec.Devices {
		slice.Spec.Devices[n].AllowMultipleAllocations = nil
		for name, c := range slice.Spec.Devices[n].Capacity {
			c.RequestPolicy = nil
			slice.Spec.Devices[n].Capacity[name] = c
		}
	}
}

func TestRulesFollowLabelsOfNode(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		labels, broken := map[string]string{"rack": "a"}, errors.New("no API server")
		r.Offer("mlx5-switchdev", "devices: [{nodes: {matchLabels: {rack: a}}, pfNames: [p0], sharing: exclusive}, {ifNames: [p0], sharing: shared}]")
		r.Options.Devices.Inventory.Poll = time.Minute
		r.Options.Devices.Inventory.Labels = func(context.Context) (map[string]string, error) { return labels, broken }
		agent := r.Start()
		_, ok := agent.Node.Slices(t.Context())
		difftest.Same(t, "published without labels", ok, false)
		expect := func(when string, want bool) {
			t.Helper()
			time.Sleep(time.Minute)
			all := dratest.Survey(agent)
			_, got := all[dratest.VF0]
			difftest.Same(t, when+": vf0 and others are offered", []bool{got, len(all) > 0}, []bool{want, true})
		}
		for len(agent.Node.Changed()) > 0 {
			<-agent.Node.Changed()
		}
		<-agent.Node.Changed() // the driver tries again by itself
		broken = nil
		expect("labels are known", true)
		broken = errors.New("no API server")
		expect("labels cannot be read any more", true)
		broken, labels = nil, map[string]string{"rack": "b"}
		expect("labels have changed", false)
	})
}

func TestStateDirectoryListsRulesAndOfferedDevices(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		n := r.Offer("mlx5-switchdev", dratest.Rules+"- ifNames: [eth77]\n  sharing: exclusive\n")
		r.Options.Devices.Inventory.File = "/rules"
		agent := r.Start()
		expect := func(devices ...state.Offered) {
			t.Helper()
			dratest.Survey(agent)
			offer, err := state.ReadOffer(r.Options.StateDir)
			difftest.Must(t, err)
			all := map[string]state.Offered{}
			for _, d := range offer.Devices {
				all[d.Name] = d
			}
			for _, d := range devices {
				difftest.Equal(t, all[d.Name], d)
			}
			offer.Devices = nil
			difftest.Equal(t, *offer, state.Offer{Rules: "/rules", Unmatched: []state.UnmatchedRule{
				{Rule: "devices[3] (ifNames: eth77)", Why: "this node has no interface eth77"},
			}})
		}
		third := state.Offered{Name: dratest.VF3, Ref: hostdev.Ref{Kind: "vf", PCI: "0000:03:00.5"}, Sharing: "exclusive", ResourceName: "example.com/vf"}
		dratest.Survey(agent)
		difftest.Equal(t, r.Samples()["devinfo_dra_unmatched_rules nearest= rule=devices[3] (ifNames: eth77)"], 1.0)
		expect(third, state.Offered{Name: dratest.SF4, Ref: hostdev.Ref{Kind: "sf", Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88"}, Sharing: "exclusive"},
			state.Offered{Name: dratest.PF, Ref: hostdev.Ref{Kind: "pf", PCI: "0000:03:00.0", IfName: "p0"}, Sharing: "shared"})
		n.Others = map[string]string{"0000:03:00.5": "pod ns/x has it"}
		third.ResourceName, third.Why = "", "pod ns/x has it"
		expect(third)
	})
}

func TestOfferFollowsRulesAndNode(t *testing.T) {
	t.Parallel()
	r, n := dratest.NewRig(t), dratest.NewNode(t, "mlx5-switchdev")
	r.UsePlugins()
	client := dratest.APIServer(nil)
	agent := r.StartOffering(client, n)
	all := dratest.WaitDevices(t, client, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF2, dratest.VF3)
	difftest.Equal(t, all[dratest.VF2].Attributes["devinfo-cni.io/physicalNetwork"].StringValue, new("blue"))
	difftest.Equal(t, []*bool{all[dratest.PF].AllowMultipleAllocations, all[dratest.VF0].AllowMultipleAllocations}, []*bool{new(true), nil})
	client.ClearActions()
	n.Change(func() { n.Others = map[string]string{"0000:03:00.4": "pod ns/x has it"} })
	dratest.WaitDevices(t, client, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF3)
	written := map[string]bool{} // kubeletplugin may write a slice twice before it sees its own update
	for _, a := range client.Actions() {
		switch a := a.(type) {
		case clienttesting.UpdateActionImpl:
			written[a.GetObject().(*resourceapi.ResourceSlice).Name] = true
		case clienttesting.CreateActionImpl, clienttesting.DeleteActionImpl:
			t.Errorf("%s of a slice", a.GetVerb())
		}
	}
	difftest.Same(t, "slices of the pool's two that were written for one VF", len(written), 1)
	n.Change(func() { n.OthersError = errors.New("the kubelet does not answer") })
	difftest.Eventually(t, "free devices are tainted", func() bool {
		all := dratest.WaitDevices(t, client, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF3)
		return len(all[dratest.VF0].Taints) == 1 && all[dratest.VF0].Taints[0].Key == "devinfo-cni.io/allocation-unknown" && all[dratest.PF].Taints == nil && agent.Node.OthersKnown() != nil
	})
	const known = "devinfo_dra_external_allocations_known"
	difftest.Same(t, known, r.Samples()[known], 0.0)
	r.PrepareFails(dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`)), "the kubelet does not answer")
	n.Change(func() { n.Others, n.OthersError = nil, nil })
	difftest.Eventually(t, "external allocations are known again", func() bool { return r.Samples()[known] == 1 })
	dratest.WaitDevices(t, client, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF2, dratest.VF3)
}

func TestOnlyExclusiveDevicesAreOfferedWithoutConsumableCapacity(t *testing.T) {
	t.Parallel()
	client := dratest.APIServer(dropSharingFields)
	r, n := dratest.NewRig(t), dratest.NewNode(t, "mlx5-switchdev")
	var log bytes.Buffer
	r.Options.Log = slog.New(slog.NewTextHandler(&log, nil))
	r.StartOffering(client, n)
	dratest.WaitDevices(t, client, dratest.SF4, dratest.SF7, dratest.VF0, dratest.VF2, dratest.VF3)
	difftest.Equal(t, r.Samples()["devinfo_dra_sharing_supported"], 0.0)
	n.Change(func() { n.Remove("enp3s0f0v2") })
	dratest.WaitDevices(t, client, dratest.SF4, dratest.SF7, dratest.VF0, dratest.VF3)
	r.Stop()
	difftest.Same(t, "warnings in the log", strings.Count(log.String(), "need Kubernetes 1.36"), 1)
}

// Before Kubernetes 1.36 the server drops taints by default, and the scheduler would allocate the devices.
func TestTaintedDevicesAreLeftOutIfTheServerDropsTaints(t *testing.T) {
	t.Parallel()
	client := dratest.APIServer(func(slice *resourceapi.ResourceSlice) {
		for n := range slice.Spec.Devices {
			slice.Spec.Devices[n].Taints = nil
		}
	})
	r, n := dratest.NewRig(t), dratest.NewNode(t, "mlx5-switchdev")
	var log bytes.Buffer
	r.Options.Log = slog.New(slog.NewTextHandler(&log, nil))
	n.OthersError = errors.New("the kubelet does not answer")
	r.StartOffering(client, n)
	dratest.WaitDevices(t, client, "cni", dratest.PF)
	offer, err := state.ReadOffer(r.Options.StateDir)
	difftest.Must(t, err)
	for _, d := range offer.Devices {
		difftest.Same(t, d.Name+" is said to be offered", d.Why == "", d.Name == dratest.PF)
		if d.Name == dratest.VF0 {
			difftest.Says(t, errors.New(d.Why), "devinfo-cni.io/allocation-unknown", "DRADeviceTaints")
		}
	}
	n.Change(func() { n.OthersError = nil })
	dratest.WaitDevices(t, client, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF2, dratest.VF3)
	n.Change(func() { n.OthersError = errors.New("the kubelet does not answer") })
	dratest.WaitDevices(t, client, "cni", dratest.PF)
	r.Stop()
	difftest.Same(t, "warnings in the log", strings.Count(log.String(), "need Kubernetes 1.36"), 1)
}

// A VF moves into a pod and stays published unchanged, also by the next process after the kubelet has removed
// the slices.
func TestHeldDeviceStaysPublishedUnchanged(t *testing.T) {
	t.Parallel()
	r, n := dratest.NewRig(t), dratest.NewNode(t, "mlx5-switchdev")
	r.UsePlugins()
	claim, bare := dratest.DeviceClaim("u1", dratest.VF2, dratest.Network(`{"type":"sriov"}`)), dratest.DeviceClaim("u2", dratest.VF3, "") // Multus reads deviceID and resourceName of vf3
	client := dratest.APIServer(nil, claim, bare)
	r.StartOffering(client, n)
	before := dratest.WaitDevices(t, client, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF2, dratest.VF3)
	r.PrepareByKubelet(claim, bare)
	difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
	n.Change(func() { n.Remove("enp3s0f0v2") })
	n.Change(func() { n.Others = map[string]string{"0000:03:00.2": "pod ns/x has it"} }) // shows that the node was read
	held := dratest.WaitDevices(t, client, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF2, dratest.VF3)
	difftest.Equal(t, []resourceapi.Device{held[dratest.VF2], held[dratest.VF3]}, []resourceapi.Device{before[dratest.VF2], before[dratest.VF3]})
	next := dratest.APIServer(nil)
	agent := r.StartOffering(next, n)
	after := dratest.WaitDevices(t, next, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF2, dratest.VF3)[dratest.VF2]
	difftest.Equal(t, after.Attributes["devinfo-cni.io/ifName"].StringValue, new("enp3s0f0v2"))
	difftest.Must(t, agent.Unprepare(t.Context(), "u1"))
	n.Change(func() {})
	dratest.WaitDevices(t, next, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF3)
}

// While the driver reads the node, a pod may take its device or return it.
func TestDeviceStaysPublishedIfPodTakesOrReturnsItDuringRead(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		n := r.Offer("mlx5-switchdev", "")
		whole := n.Text
		before, after := func() {}, func() {}
		r.Options.Devices.Inventory.Host = func() (inventory.Host, error) {
			before()
			host, err := n.Host()
			after()
			return host, err
		}
		agent := r.Start()
		was := dratest.Survey(agent)
		wanted := func(when string) {
			t.Helper()
			before, after = func() {}, func() {}
			difftest.Same(t, when, dratest.Survey(agent), was)
		}
		before = func() {
			before, after = func() {}, func() {}
			r.Prepare(dratest.DeviceClaim("u1", dratest.VF2, dratest.Network(`{"type":"sriov"}`)))
			n.Remove("enp3s0f0v2")
		}
		difftest.Same(t, "the device moves into a pod before the read", dratest.Survey(agent), was)
		wanted("the pod has it")
		after = func() {
			difftest.Must(t, agent.Unprepare(t.Context(), "u1"))
			n.Text = whole
			for len(agent.Node.Changed()) > 0 {
				<-agent.Node.Changed()
			}
		}
		difftest.Same(t, "the device returns after the read", dratest.Survey(agent), was)
		difftest.Same(t, "requests for another survey", len(agent.Node.Changed()), 1)
		r.Prepare(dratest.DeviceClaim("u2", dratest.VF2, dratest.Network(`{"type":"sriov"}`)))
		difftest.Equal(t, r.Record("u2").Attachments[0].NodeDevice.IfName, "enp3s0f0v2") // although the last survey did not see the interface
		difftest.Must(t, agent.Unprepare(t.Context(), "u2"))
		wanted("the node has the device again")
	})
}

// The canceled context ends the request, which does not mean that the kubelet is unreachable.
func TestCanceledSurveyDoesNotReportKubeletUnreachable(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Offer("mlx5-switchdev", "")
		r.Options.Devices.Inventory.Others = func(ctx context.Context) (map[string]string, error) { return nil, ctx.Err() }
		agent := r.Start()
		dratest.Survey(agent)
		ended, end := context.WithCancel(t.Context())
		end()
		if list, _ := agent.Node.Slices(ended); list != nil || agent.Node.OthersKnown() != nil {
			t.Errorf("%d slices, %v", len(list), agent.Node.OthersKnown())
		}
	})
}

func TestNodeIsReadSoonAfterEventsAndRegularly(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Offer("mlx5-switchdev", "")
		of, events, next := r.Options.Devices.Inventory, make(chan struct{}), make(chan struct{}, 1)
		streams := []chan struct{}{events, next}
		of.Settle, of.Poll = time.Second, time.Minute
		of.Events = func(context.Context) (<-chan struct{}, error) {
			defer func() { streams = streams[1:] }()
			return streams[0], nil
		}
		node, start := r.Start().Node, time.Now()
		go node.Watch(t.Context())
		var at []time.Duration
		go func() {
			for {
				node.Slices(t.Context())
				at = append(at, time.Since(start))
				select {
				case <-node.Changed():
				case <-t.Context().Done():
					return
				}
			}
		}()
		for _, pause := range []time.Duration{10 * time.Second, 300 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second} {
			time.Sleep(pause)
			events <- struct{}{}
		}
		close(events) // 15.6 s after the start; a socket has failed
		time.Sleep(90 * time.Second)
		next <- struct{}{}
		time.Sleep(time.Second)
		synctest.Wait()
		difftest.Equal(t, at, []time.Duration{0, 11 * time.Second, 16600 * time.Millisecond, 76600 * time.Millisecond, 106600 * time.Millisecond})
	})
}

// If external allocations or the labels of the Node object are unknown, or allocations will soon end, they are read
// again before the next poll. They are read only once, even if the node changes often.
func TestExternalAllocationsAndLabelsAreReadAgainOnce(t *testing.T) {
	noAnswer := errors.New("rate limited")
	for name, test := range map[string]struct {
		waits  time.Duration
		others error
		labels error
		within time.Duration
	}{
		"soon released": {7 * time.Second, nil, nil, 7 * time.Second}, "not known": {0, noAnswer, nil, 10 * time.Second},
		"either": {3 * time.Second, noAnswer, nil, 3 * time.Second}, "all known": {0, nil, nil, time.Hour},
		"no labels": {0, nil, noAnswer, 10 * time.Second},
	} {
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			r.Offer("mlx5-switchdev", "devices: [{nodes: {matchLabels: {rack: a}}, ifNames: [p0], sharing: shared}]").OthersError = test.others
			r.Options.Devices.Inventory.Labels = func(context.Context) (map[string]string, error) { return nil, test.labels }
			r.Options.Devices.Inventory.Waits = func() time.Duration { return test.waits }
			r.Options.Devices.Inventory.Poll = 2 * time.Hour
			agent := r.Start()
			for range 20 { // changes of the node
				dratest.Survey(agent)
				time.Sleep(100 * time.Millisecond)
			}
			asked := false
			select {
			case <-agent.Node.Changed():
				asked = true
			case <-time.After(test.within):
			}
			time.Sleep(time.Minute)
			if asked != (test.within < time.Hour) || len(agent.Node.Changed()) > 0 {
				t.Errorf("%s: read again %v, and then %d times", name, asked, len(agent.Node.Changed()))
			}
		})
	}
}
