package dra_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	clienttesting "k8s.io/client-go/testing"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/test/difftest"
)

func TestRulesFollowLabelsOfNode(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		labels, broken := map[string]string{"rack": "a"}, errors.New("no API server")
		r.offer("mlx5-switchdev", "devices: [{nodes: {matchLabels: {rack: a}}, pfNames: [p0], sharing: exclusive}, {ifNames: [p0], sharing: shared}]")
		r.options.Devices.Inventory.Times.Poll = time.Minute
		r.options.Devices.Inventory.Labels = func(context.Context) (map[string]string, error) { return labels, broken }
		agent := r.start()
		_, ok := agent.Node.Slices(t.Context())
		difftest.Same(t, "published without labels", ok, false)
		expect := func(when string, want bool) {
			t.Helper()
			time.Sleep(time.Minute)
			all := inventory.PublishedIn(dra.Survey(agent))
			_, got := all[vf0]
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
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		n := r.offer("mlx5-switchdev", ownRules+"- ifNames: [eth77]\n  sharing: exclusive\n")
		r.options.Devices.Inventory.File = "/rules"
		agent := r.start()
		expect := func(devices ...state.Offered) {
			t.Helper()
			dra.Survey(agent)
			offer, err := state.ReadOffer(r.options.StateDir)
			must(t, err)
			all := map[string]state.Offered{}
			for _, d := range offer.Devices {
				all[d.Name] = d
			}
			for _, d := range devices {
				difftest.Equal(t, all[d.Name], d)
			}
			offer.Devices = nil
			difftest.Equal(t, *offer, state.Offer{Rules: "/rules", Unmatched: []state.UnmatchedRule{
				{Rule: "devices[3] (ifNames: eth77)", Why: "this node has no interface eth77; the nearest is p0", Nearest: "p0"},
			}})
		}
		third := state.Offered{Name: vf3, Ref: hostdev.Ref{Kind: "vf", PCI: "0000:03:00.5"}, Sharing: "exclusive", ResourceName: "example.com/vf"}
		expect(third, state.Offered{Name: sf4, Ref: hostdev.Ref{Kind: "sf", Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88"}, Sharing: "exclusive"},
			state.Offered{Name: pf, Ref: hostdev.Ref{Kind: "pf", PCI: "0000:03:00.0", IfName: "p0"}, Sharing: "shared"})
		n.others = map[string]string{"0000:03:00.5": "pod ns/x has it"}
		third.ResourceName, third.Why = "", "pod ns/x has it"
		expect(third)
	})
}

// The rule matches an interface that the node does not see while a pod has the PF. The VFs are still visible.
func TestVFsOfPFHeldThroughMultusAreNotPrepared(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		n := newNode(t, "igb-sriov")
		n.rules = "devices: [{drivers: [igbvf], sharing: exclusive}, {ifNames: [eth1], sharing: exclusive}]"
		n.remove("eth1")
		r.options.Devices.Inventory = n.inventory()
		r.options.Devices.Journal = journalIn(r.dir, "boot1")
		r.start()
		r.sandbox("s0", "other")
		r.recordMultus(multusEntry("other", "s0", r.netns("s0"), exclusiveLease("pci-0000:41:00.0")))
		r.prepareFails(ownClaim("u1", "pci-0000-41-10-0", network(`{"type":"sriov"}`)), "pci-0000-41-00-0, its parent: pod ns/other (net7, network sriov-net) has it")
	})
}

func TestOfferFollowsRulesAndNode(t *testing.T) {
	t.Parallel()
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	client := apiServer(nil)
	agent := r.startOffering(client, n, p)
	all := waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf2, vf3)
	difftest.Equal(t, all[vf2].Attributes["devinfo-cni.io/physicalNetwork"].StringValue, new("blue"))
	difftest.Equal(t, []*bool{all[pf].AllowMultipleAllocations, all[vf0].AllowMultipleAllocations}, []*bool{new(true), nil})
	client.ClearActions()
	n.change(func() { n.others = map[string]string{"0000:03:00.4": "pod ns/x has it"} })
	waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf3)
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
	n.change(func() { n.othersError = errors.New("the kubelet does not answer") })
	difftest.Eventually(t, "free devices are tainted", func() bool {
		all := waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf3)
		return len(all[vf0].Taints) == 1 && all[vf0].Taints[0].Key == "devinfo-cni.io/allocation-unknown" && all[pf].Taints == nil && agent.Node.OthersKnown() != nil
	})
	r.prepareFails(ownClaim("u1", vf0, network(`{"type":"sriov"}`)), "the kubelet does not answer")
	n.change(func() { n.others, n.othersError = nil, nil })
	difftest.Eventually(t, "external allocations are known again", func() bool { return agent.Node.OthersKnown() == nil })
	waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf2, vf3)
}

func TestOnlyExclusiveDevicesAreOfferedWithoutConsumableCapacity(t *testing.T) {
	t.Parallel()
	client := apiServer(dropSharingFields)
	r, n := newRig(t), newNode(t, "mlx5-switchdev")
	var log bytes.Buffer
	r.options.Log = slog.New(slog.NewTextHandler(&log, nil))
	r.startOffering(client, n, newPlugins())
	waitDevices(t, client, sf4, sf7, vf0, vf2, vf3)
	difftest.Equal(t, r.samples()["devinfo_dra_sharing_supported"], 0.0)
	n.change(func() { n.remove("enp3s0f0v2") })
	waitDevices(t, client, sf4, sf7, vf0, vf3)
	r.stop()
	difftest.Same(t, "warnings in the log", strings.Count(log.String(), "need Kubernetes 1.36"), 1)
}

// A VF moves into a pod and stays published unchanged, also by the next process after the kubelet has removed
// the slices.
func TestHeldDeviceStaysPublishedUnchanged(t *testing.T) {
	t.Parallel()
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	claim, bare := ownClaim("u1", vf2, network(`{"type":"sriov"}`)), ownClaim("u2", vf3, "") // Multus reads deviceID and resourceName of vf3
	client := apiServer(nil, claim, bare)
	r.startOffering(client, n, p)
	before := waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf2, vf3)
	r.prepareByKubelet(claim, bare)
	must(t, r.runPod(r.sandbox("s1", "pod")))
	n.change(func() { n.remove("enp3s0f0v2") })
	n.change(func() { n.others = map[string]string{"0000:03:00.2": "pod ns/x has it"} }) // shows that the node was read
	held := waitDevices(t, client, sf4, sf7, "cni", pf, vf2, vf3)
	difftest.Equal(t, []resourceapi.Device{held[vf2], held[vf3]}, []resourceapi.Device{before[vf2], before[vf3]})
	next := apiServer(nil)
	agent := r.startOffering(next, n, p)
	after := waitDevices(t, next, sf4, sf7, "cni", pf, vf2, vf3)[vf2]
	difftest.Equal(t, after.Attributes["devinfo-cni.io/ifName"].StringValue, new("enp3s0f0v2"))
	must(t, agent.Unprepare(t.Context(), "u1"))
	n.change(func() {})
	waitDevices(t, next, sf4, sf7, "cni", pf, vf3)
}

// While the driver reads the node, a pod may take its device or return it.
func TestDeviceStaysPublishedIfPodTakesOrReturnsItDuringRead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		n := r.offer("mlx5-switchdev", "")
		whole := n.text
		before, after := func() {}, func() {}
		r.options.Devices.Inventory.Host = func() (inventory.Host, error) {
			before()
			host, err := n.host()
			after()
			return host, err
		}
		agent := r.start()
		was := dra.Survey(agent)
		wanted := func(when string) {
			t.Helper()
			before, after = func() {}, func() {}
			difftest.Same(t, when, dra.Survey(agent), was)
		}
		before = func() {
			before, after = func() {}, func() {}
			r.prepare(ownClaim("u1", vf2, network(`{"type":"sriov"}`)))
			n.remove("enp3s0f0v2")
		}
		difftest.Same(t, "the device moves into a pod before the read", dra.Survey(agent), was)
		wanted("the pod has it")
		after = func() {
			must(t, agent.Unprepare(t.Context(), "u1"))
			n.text = whole
		}
		difftest.Same(t, "the device returns after the read", dra.Survey(agent), was)
		r.prepare(ownClaim("u2", vf2, network(`{"type":"sriov"}`)))
		difftest.Equal(t, r.attachment("u2").NodeDevice.IfName, "enp3s0f0v2") // although the last survey did not see the interface
		must(t, agent.Unprepare(t.Context(), "u2"))
		wanted("the node has the device again")
	})
}

// The canceled context ends the request, which does not mean that the kubelet is unreachable.
func TestCanceledSurveyDoesNotReportKubeletUnreachable(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		r.offer("mlx5-switchdev", "")
		r.options.Devices.Inventory.Others = func(ctx context.Context) (map[string]string, error) { return nil, ctx.Err() }
		agent := r.start()
		dra.Survey(agent)
		ended, end := context.WithCancel(t.Context())
		end()
		if list, _ := agent.Node.Slices(ended); list != nil || agent.Node.OthersKnown() != nil {
			t.Errorf("%d slices, %v", len(list), agent.Node.OthersKnown())
		}
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
		inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
			r.offer("mlx5-switchdev", "devices: [{nodes: {matchLabels: {rack: a}}, ifNames: [p0], sharing: shared}]").othersError = test.others
			r.options.Devices.Inventory.Labels = func(context.Context) (map[string]string, error) { return nil, test.labels }
			r.options.Devices.Inventory.Waits = func() time.Duration { return test.waits }
			agent := r.start()
			for range 20 { // changes of the node
				dra.Survey(agent)
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
