package dra_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/test/difftest"
)

// Attaching a device that the host has begun to use would cut off the node.
func TestDeviceThatHostNeedsIsNotAttached(t *testing.T) {
	for why, change := range map[string]string{
		"the host needs it: enp3s0f0v0 has a default route": "\n-- netlink/uplinks.json --\n[\"enp3s0f0v0\"]\n",
		"": "",
	} {
		inBubble(t, func(t *testing.T, r *rig, p *plugins) {
			n := r.offer("mlx5-switchdev", "")
			agent := r.start()
			r.prepare(ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
			n.text = append(n.text, change...)
			dra.Survey(agent)
			err := r.runPod(r.sandbox("s1", "pod"))
			if why == "" {
				must(t, err)
				return
			}
			says(t, err, vf0, why)
			r.expectCalls("", 0)
		})
	}
}

// Publishing reads the node. Prepare reads it again only if the published slices are not enough.
func TestPrepareReadsNodeOnlyIfNecessary(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		n, reads := r.offer("mlx5-switchdev", ""), 0
		read := r.options.Devices.Inventory.Host
		r.options.Devices.Inventory.Host = func() (inventory.Host, error) { reads++; return read() }
		agent := r.start()
		dra.Survey(agent)
		prepare := func(claim, device, parameters, why string, want int) {
			t.Helper()
			asked := ownClaim(claim, device, parameters)
			setIfName(asked, "if-"+claim)
			_, err := agent.Prepare(t.Context(), asked)
			if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
				t.Errorf("%s: got %v, want %q", device, err, why)
			}
			if reads != want {
				t.Errorf("%s: the node was read %d times, not %d", device, reads, want)
			}
		}
		prepare("u1", vf0, network(`{"type":"sriov"}`), "", 1)
		prepare("u2", sf7, network(`{"type":"host-device","capabilities":{"deviceID":true}}`), "", 1)
		prepare("u3", "pci-0000-03-00-3", network(`{"type":"sriov"}`), "does not offer it", 2)
		n.others = map[string]string{"0000:03:00.4": "pod ns/x has it"}
		prepare("u4", vf2, network(`{"type":"sriov"}`), "pod ns/x has it", 3)
		prepare("u5", "pci-0000-09-00-0", network(`{"type":"sriov"}`), "no device of that name", 4)
	})
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
		wanted("the node has the device again")
	})
}

// The last survey may date from the time when the earlier pod had the device.
func TestDeviceReturnedByPodKeepsItsInterfaceName(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		n := r.offer("mlx5-switchdev", "")
		agent := r.start()
		dra.Survey(agent)
		for _, uid := range []string{"u1", "u2"} {
			r.prepare(ownClaim(uid, vf2, network(`{"type":"sriov"}`)))
			if got := r.attachment(string(uid)).NodeDevice.IfName; got != "enp3s0f0v2" {
				t.Errorf("%s: the interface is %q", uid, got)
			}
			whole := n.text
			n.remove("enp3s0f0v2")
			dra.Survey(agent)
			n.text = whole
			must(t, agent.Unprepare(t.Context(), uid))
		}
	})
}

// Pods can share the device with any other user, so Prepare needs no external allocations after the first survey.
func TestSharedDeviceIsPreparedWithoutExternalAllocations(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		r.offer("mlx5-switchdev", "")
		r.options.Devices.Inventory.Others = func(context.Context) (map[string]string, error) {
			time.Sleep(10 * time.Second)
			return nil, errors.New("the kubelet does not answer")
		}
		agent := r.start()
		for n, uid := range []string{"u1", "u2"} {
			began := time.Now()
			r.prepare(ownClaim(uid, pf, network(`{"type":"macvlan"}`)))
			if took := time.Since(began); n > 0 && took > time.Second {
				t.Errorf("it takes %v", took)
			}
			r.prepareFails(ownClaim("u3", vf0, network(`{"type":"sriov"}`)), "the kubelet does not answer")
			must(t, agent.Unprepare(t.Context(), uid))
			dra.Survey(agent)
		}
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
