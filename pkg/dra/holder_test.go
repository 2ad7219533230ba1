package dra_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/journal"
)

// multus is what the devinfo plugin has noted of an ADD by Multus.
func multus(pod, sandbox, netns, device string) *journal.Entry {
	return &journal.Entry{
		Key: journal.Key{Network: "sriov-net", ContainerID: sandbox, IfName: "net7"}, Netns: netns, Complete: true, Time: time.Now(),
		Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=" + pod, Asked: journal.Asked{DeviceIDs: []journal.DeviceID{{Key: "runtimeConfig.deviceID", ID: device}}},
	}
}

// What Multus has given away, to the claim's own pod or to another one, no plugin of the
// claim is run for, and the error names both.
func TestADeviceThatMultusHasGivenAwayIsNotAttachedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		device, plugin string
		held           func(r *rig) // by somebody else
		want           []string     // in the error; none = it is attached
	}{
		"to another pod": {vf0, "sriov", func(r *rig) { r.multus(multus("other", "s0", r.netns("s0"), "0000:03:00.2")) },
			[]string{"claim ns/claim-u1", "pci-0000-03-00-2 (0000:03:00.2) is held by pod ns/other (net7, network sriov-net)", "pod ns/pod (net1) cannot have it too"}},
		"to the pod itself": {vf0, "sriov", func(r *rig) { r.multus(multus("pod", "s1", r.netns("s1"), "0000:03:00.2")) },
			[]string{"is held by pod ns/pod (net7", "pod ns/pod (net1) cannot have it too"}},
		"an SF": {sf4, `host-device","capabilities":{"deviceID":true},"x":"`, func(r *rig) { r.multus(multus("other", "s0", r.netns("s0"), "mlx5_core.sf.4")) },
			[]string{"mlx5_core.sf.4) is held by pod ns/other"}},
		"by sriov-cni alone": {vf0, "sriov", func(r *rig) {
			r.options.Inventory.Locks = func() (map[string]string, error) { return map[string]string{"0000:03:00.2": r.netns("s0")}, nil }
		}, []string{"is held by pod ns/other (by sriov-cni)"}},
		"to a pod that is gone": {vf0, "sriov", func(r *rig) { r.multus(multus("other", "s9", filepath.Join(r.dir, "netns", "s9"), "0000:03:00.2")) }, nil},
		"another device":        {vf0, "sriov", func(r *rig) { r.multus(multus("other", "s0", r.netns("s0"), "0000:03:00.4")) }, nil},
		"what pods share":       {pf, "macvlan", func(r *rig) { r.multus(multus("other", "s0", r.netns("s0"), "0000:03:00.0")) }, nil},
		"nothing":               {vf0, "sriov", func(*rig) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			timeless(t, func(t *testing.T, r *rig, p *plugins) {
				var told []dra.Notice
				r.options.Notify = func(n dra.Notice) { told = append(told, n) }
				r.options.Journal = journal.Open(filepath.Join(r.dir, "journal"), "boot1")
				r.options.Inventory = newNode(t, "mlx5-switchdev").inventory()
				agent := r.start()
				_, err := agent.Prepare(t.Context(), ownClaim("u1", test.device, network(`{"type":"`+test.plugin+`"}`)))
				must(t, err)
				must(t, r.runPod(r.sandbox("s0", "other")))
				test.held(r)
				err = r.runPod(r.sandbox("s1", "pod"))
				if test.want == nil {
					must(t, err)
					return
				}
				if err == nil {
					t.Fatal("it is attached")
				}
				for _, part := range test.want {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%v: does not say %q", err, part)
					}
				}
				if len(told) != 1 || !strings.Contains(told[0].Text, test.want[0]) {
					t.Errorf("the pod is told %+v", told)
				}
				if n := p.calls(""); n > 0 {
					t.Errorf("plugins were run: %q", p.told)
				}
			})
		})
	}
}

// The devinfo plugin finds the holder for as long as there is one.
func TestTheDevinfoPluginLearnsWhoHasADevice(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, _ *plugins) {
		j := journal.Open(filepath.Join(r.dir, "journal"), "boot1")
		r.options.Journal = j
		r.options.Inventory = newNode(t, "mlx5-switchdev").inventory()
		agent := r.start()
		_, err := agent.Prepare(t.Context(), ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
		must(t, err)
		sb := r.sandbox("s1", "pod")
		must(t, r.runPod(sb))
		want := journal.Holder{
			Key: journal.Key{Network: "net", ContainerID: "s1", IfName: "net1"}, Netns: r.netns("s1"), BootID: "boot1", Pod: "ns/pod", Claim: "ns/claim-u1",
		}
		if h, err := j.HolderOf("0000:03:00.2"); err != nil || h == nil || *h != want {
			t.Errorf("got %+v, %v", h, err)
		}
		r.endPod(sb)
		r.unprepared("u1")
		if h, err := j.HolderOf("0000:03:00.2"); h != nil || err != nil {
			t.Errorf("after DEL: %+v, %v", h, err)
		}
		r.expectNothing()
	})
}

// multus puts an entry into the journal.
func (r *rig) multus(e *journal.Entry) {
	_, err := r.options.Journal.Put(e, nil)
	must(r.t, err)
}

// netns is the path of a sandbox's network namespace.
func (r *rig) netns(sandbox string) string { return filepath.Join(r.dir, "netns", sandbox) }
