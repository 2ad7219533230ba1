package dra_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/journal"
)

// multus is what the devinfo plugin has noted of an ADD by Multus.
func multus(pod, sandbox, netns string, leases ...journal.DeviceLease) *journal.Entry {
	return &journal.Entry{
		Key: journal.Key{Network: "sriov-net", ContainerID: sandbox, IfName: "net7"}, Netns: netns, Complete: true, Time: time.Now(),
		Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=" + pod, Pod: "uid-" + pod, Leases: leases,
	}
}

func exclusive(id string) journal.DeviceLease {
	return journal.DeviceLease{ID: id, Mode: journal.Exclusive}
}

// What Multus has given away, to the claim's own pod or to another one, no plugin of the
// claim is run for, and the error names both.
func TestADeviceThatMultusHasGivenAwayIsNotAttachedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		device, plugin string
		held           func(r *rig) // by somebody else
		want           []string     // in the error; none = it is attached
	}{
		"to another pod": {vf0, "sriov", func(r *rig) { r.multus(multus("other", "s0", r.netns("s0"), exclusive("pci-0000:03:00.2"))) },
			[]string{"claim ns/claim-u1", "pci-0000-03-00-2 (0000:03:00.2) is held by pod ns/other (net7, network sriov-net)", "pod ns/pod (net1) cannot have it too"}},
		"its PF, to another pod": {vf0, "sriov", func(r *rig) { r.multus(multus("other", "s0", r.netns("s0"), exclusive("pci-0000:03:00.0"))) },
			[]string{"is held by pod ns/other (net7"}},
		"an SF": {sf4, `host-device","capabilities":{"deviceID":true},"x":"`, func(r *rig) {
			r.multus(multus("other", "s0", r.netns("s0"), exclusive("auxiliary-mlx5_core.sf.4")))
		}, []string{"mlx5_core.sf.4) is held by pod ns/other"}},
		"by sriov-cni alone": {vf0, "sriov", func(r *rig) {
			must(r.t, os.WriteFile(filepath.Join(r.options.Journal.SRIOVLocks, "0000:03:00.2"), []byte(r.netns("s0")), 0o600))
		}, []string{"is held by pod ns/other (by sriov-cni)"}},
		"what pods share, to one alone": {pf, "macvlan", func(r *rig) { r.multus(multus("other", "s0", r.netns("s0"), exclusive("pci-0000:03:00.0"))) },
			[]string{"is held by pod ns/other"}},
		"to the pod itself": {vf0, "sriov", func(r *rig) { r.multus(multus("pod", "s1", r.netns("s1"), exclusive("pci-0000:03:00.2"))) }, nil},
		"to a pod that is gone": {vf0, "sriov", func(r *rig) {
			r.multus(multus("other", "s9", filepath.Join(r.dir, "netns", "s9"), exclusive("pci-0000:03:00.2")))
		}, nil},
		"another device": {vf0, "sriov", func(r *rig) { r.multus(multus("other", "s0", r.netns("s0"), exclusive("pci-0000:03:00.4"))) }, nil},
		"what pods share": {pf, "macvlan", func(r *rig) {
			r.multus(multus("other", "s0", r.netns("s0"), journal.DeviceLease{ID: "pci-0000:03:00.0", Mode: journal.Shared}))
		}, nil},
		"nothing": {vf0, "sriov", func(*rig) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			timeless(t, func(t *testing.T, r *rig, p *plugins) {
				var told []dra.Notice
				r.options.Notify = func(n dra.Notice) { told = append(told, n) }
				r.options.Journal = journal.Open(filepath.Join(r.dir, "journal"), "boot1")
				r.options.Journal.SRIOVLocks = t.TempDir()
				r.options.Journal.NetnsGone = isAway
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
		holders := func() []journal.Holder {
			list, err := j.Holders(journal.OfDevice, "pci-0000:03:00.2")
			must(t, err)
			return list
		}
		if h := holders(); len(h) != 1 || h[0].String() != "claim ns/claim-u1" || h[0].Mode != journal.Exclusive {
			t.Errorf("got %+v", h)
		}
		r.endPod(sb)
		r.unprepared("u1")
		if h := holders(); h != nil {
			t.Errorf("after DEL: %+v", h)
		}
		r.expectNothing()
	})
}

// isAway says that a sandbox's network namespace is gone.
func isAway(netns string) (bool, error) {
	_, err := os.Stat(netns)
	return errors.Is(err, fs.ErrNotExist), nil
}

// multus puts an entry into the journal.
func (r *rig) multus(e *journal.Entry) {
	must(r.t, r.options.Journal.Record(e, nil))
	e.Unlock()
}

// netns is the path of a sandbox's network namespace.
func (r *rig) netns(sandbox string) string { return filepath.Join(r.dir, "netns", sandbox) }
