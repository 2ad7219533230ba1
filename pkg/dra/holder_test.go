package dra_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
)

// multusEntry returns the journal entry of an ADD by Multus.
func multusEntry(pod, sandbox, netns string, leases ...journal.DeviceLease) *journal.Entry {
	return &journal.Entry{
		Key: journal.Key{Network: "sriov-net", ContainerID: sandbox, IfName: "net7"}, Netns: netns, Complete: true, Time: time.Now(),
		Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=" + pod, Pod: "uid-" + pod, Leases: leases,
	}
}

func exclusiveLease(id string) journal.DeviceLease {
	return journal.DeviceLease{ID: id, Mode: journal.Exclusive}
}

// If Multus has attached the device, to the claim's pod or to another pod, no plugin of the claim runs. The
// error names both pods.
func TestDeviceHeldThroughMultusIsNotAttached(t *testing.T) {
	const other, pfLease, vfLease = "is held by pod ns/other", "pci-0000:03:00.0", "pci-0000:03:00.2"
	multus := func(pod, sandbox string, lease journal.DeviceLease) func(*rig) {
		return func(r *rig) { r.recordMultus(multusEntry(pod, sandbox, r.netns(sandbox), lease)) }
	}
	for name, test := range map[string]struct {
		device, plugin string
		held           func(r *rig) // records the other holder
		want           []string     // parts of the error; nil = attached
	}{
		"to another pod": {vf0, "sriov", multus("other", "s0", exclusiveLease(vfLease)), []string{
			"claim ns/claim-u1", "pci-0000-03-00-2 (0000:03:00.2) " + other + " (net7, network sriov-net)", "pod ns/pod (net1) cannot have it too"}},
		"its PF, to another pod": {vf0, "sriov", multus("other", "s0", exclusiveLease(pfLease)), []string{other + " (net7"}},
		"an SF": {sf4, `host-device","capabilities":{"deviceID":true},"x":"`, multus("other", "s0", exclusiveLease("auxiliary-mlx5_core.sf.4")),
			[]string{"mlx5_core.sf.4) " + other}},
		"by sriov-cni alone": {vf0, "sriov", func(r *rig) {
			must(r.t, os.WriteFile(filepath.Join(r.options.Devices.Journal.SRIOVLocks, "0000:03:00.2"), []byte(r.netns("s0")), 0o600))
		}, []string{other + " (by sriov-cni)"}},
		"shared master, exclusively to another pod": {pf, "macvlan", multus("other", "s0", exclusiveLease(pfLease)), []string{other}},
		"to the pod itself":                         {vf0, "sriov", multus("pod", "s1", exclusiveLease(vfLease)), nil},
		"to a deleted pod":                          {vf0, "sriov", multus("other", "s9", exclusiveLease(vfLease)), nil},
		"another device":                            {vf0, "sriov", multus("other", "s0", exclusiveLease("pci-0000:03:00.4")), nil},
		"shared master":                             {pf, "macvlan", multus("other", "s0", journal.DeviceLease{ID: pfLease, Mode: journal.Shared}), nil},
		"no device":                                 {vf0, "sriov", func(*rig) {}, nil},
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			var told []claim.Notice
			r.options.Notify = func(n claim.Notice) { told = append(told, n) }
			r.options.Devices.Journal = journalIn(r.dir, "boot1")
			r.options.Devices.Journal.SRIOVLocks = t.TempDir()
			r.offer("mlx5-switchdev", "")
			r.start()
			r.prepare(ownClaim("u1", test.device, network(`{"type":"`+test.plugin+`"}`)))
			must(t, r.runPod(r.sandbox("s0", "other")))
			test.held(r)
			err := r.runPod(r.sandbox("s1", "pod"))
			if test.want == nil {
				must(t, err)
				return
			}
			says(t, err, test.want...)
			if len(told) != 1 || !strings.Contains(told[0].Text, test.want[0]) {
				t.Errorf("notices: %+v", told)
			}
			r.expectCalls("", 0)
		}))
	}
}

// isNetnsMissing reports whether a sandbox's network namespace does not exist.
func isNetnsMissing(netns string) (bool, error) {
	_, err := os.Stat(netns)
	return errors.Is(err, fs.ErrNotExist), nil
}

// recordMultus writes an entry to the journal.
func (r *rig) recordMultus(e *journal.Entry) {
	r.t.Helper()
	must(r.t, r.options.Devices.Journal.Record(e, nil))
	e.Unlock()
}

// netns returns the path of a sandbox's network namespace.
func (r *rig) netns(sandbox string) string { return filepath.Join(r.dir, "netns", sandbox) }

// prepareVF0 starts an agent with a journal and prepares a claim of vf0.
func (r *rig) prepareVF0() *dra.Agent {
	r.t.Helper()
	r.options.Devices.Journal = journalIn(r.dir, "boot1")
	r.offer("mlx5-switchdev", "")
	agent := r.start()
	r.prepare(ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
	return agent
}

// The administrator clears the attachment to the earlier sandbox only.
func TestClearKeepsDeviceAndInterfaceOfLaterSandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		agent := r.prepareVF0()
		p.setHook(failSandbox("s1"))
		_ = r.runPod(r.sandbox("s1", "pod"))
		r.endPod(r.sandbox("s1", "pod"))
		time.Sleep(30 * time.Minute)
		must(t, r.runPod(r.sandbox("s2", "pod")))
		r.expectPhase("Undeleted", 1)
		_, err := state.Clear(r.options.StateDir, "u1")
		must(t, err)
		time.Sleep(2 * time.Minute) // longer than a sweep
		waitIdle()
		if got := agent.Census().Phases; got["Undeleted"] != 0 || got["Added"] != 1 {
			t.Errorf("got %v", got)
		}
		r.expectHolders("pci-0000:03:00.2", "claim ns/claim-u1")
		r.expectFiles("cache", 1)
	})
}

// Several pods may use one claim after another. The device and the rules may change between two pods.
func TestPrepareAgainChecksCurrentOffer(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.prepareVF0()
		p.setHook(failAll)
		_ = r.runPod(r.sandbox("s1", "pod"))
		r.endPod(r.sandbox("s1", "pod"))
		r.removeNetns(r.sandbox("s1", "pod"))
		r.unprepare("u1")
		r.expectPhase("Undeleted", 1)
		r.offer("mlx5-switchdev", "devices: []")
		r.start()
		waitIdle()
		r.prepareFails(ownClaim("u1", vf0, network(`{"type":"sriov"}`)), vf0, "does not offer it")
	})
}

// The scheduler may give a claim another device while the first one is not restored.
func TestReallocatedClaimKeepsLeaseOfUndeletedDevice(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.prepareVF0()
		p.setHook(failAll)
		_ = r.runPod(r.sandbox("s1", "pod"))
		r.endPod(r.sandbox("s1", "pod"))
		p.setHook(failSandbox("s1"))
		time.Sleep(30 * time.Minute)
		r.prepare(ownClaim("u1", vf2, network(`{"type":"sriov"}`)))
		second := r.runSandbox("s2", "pod")
		r.expectHolders("pci-0000:03:00.2", "claim ns/claim-u1")
		r.expectHolders("pci-0000:03:00.4", "claim ns/claim-u1")
		p.setHook(nil)
		time.Sleep(2 * time.Hour)
		waitIdle()
		r.expectHolders("pci-0000:03:00.2") // the device is restored
		r.expectHolders("pci-0000:03:00.4", "claim ns/claim-u1")
		r.endAndUnprepare(second, "u1")
		r.expectHolders("pci-0000:03:00.4")
	})
}
