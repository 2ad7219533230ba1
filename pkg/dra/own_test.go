package dra_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/test/difftest"
)

func TestOfferFollowsRulesAndNode(t *testing.T) {
	t.Parallel()
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	client := apiServer(nil)
	agent := r.startOffering(client, n, p)
	all := waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf2, vf3)
	if got := all[vf2].Attributes["devinfo-cni.io/physicalNetwork"].StringValue; got == nil || *got != "blue" {
		t.Errorf("got %v", all[vf2])
	}
	if share := all[pf].AllowMultipleAllocations; share == nil || !*share || all[vf0].AllowMultipleAllocations != nil {
		t.Errorf("shared is what the rules say: %v", all[pf])
	}
	n.change(func() { n.others = map[string]string{"0000:03:00.4": "pod ns/x has it"} })
	waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf3)
	n.change(func() { n.othersError = errors.New("the kubelet does not answer") })
	r.eventually("free devices are tainted", func() bool {
		all := waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf3)
		return len(all[vf0].Taints) == 1 && all[vf0].Taints[0].Key == "devinfo-cni.io/allocation-unknown" && all[pf].Taints == nil && agent.Node.OthersKnown() != nil
	})
	r.prepareFails(ownClaim("u1", vf0, network(`{"type":"sriov"}`)), "the kubelet does not answer")
	n.change(func() { n.others, n.othersError = nil, nil })
	r.eventually("external allocations are known again", func() bool { return agent.Node.OthersKnown() == nil })
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
	if got := r.samples()["devinfo_dra_sharing_supported"]; got != 0 {
		t.Errorf("the metric is %v", got)
	}
	n.change(func() { n.remove("enp3s0f0v2") })
	waitDevices(t, client, sf4, sf7, vf0, vf3)
	r.stop()
	if text := log.String(); strings.Count(text, "need Kubernetes 1.36") != 1 {
		t.Errorf("the log:\n%s", text)
	}
}

// A VF moves into a pod and stays published unchanged, also by the next process after the kubelet has removed
// the slices.
func TestHeldDeviceStaysPublishedUnchanged(t *testing.T) {
	t.Parallel()
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	claim := ownClaim("u1", vf2, network(`{"type":"sriov"}`))
	client := apiServer(nil, claim)
	r.startOffering(client, n, p)
	before := waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf2, vf3)
	r.prepareByKubelet(claim)
	must(t, r.runPod(r.sandbox("s1", "pod")))
	if got := string(r.attachment("u1").List); !strings.Contains(got, `"deviceID":"0000:03:00.4"`) {
		t.Errorf("the plugin gets %s", got)
	}
	n.change(func() { n.remove("enp3s0f0v2") })
	n.change(func() { n.others = map[string]string{"0000:03:00.2": "pod ns/x has it"} }) // shows that the node was read
	difftest.Equal(t, waitDevices(t, client, sf4, sf7, "cni", pf, vf2, vf3)[vf2], before[vf2])
	next := apiServer(nil)
	agent := r.startOffering(next, n, p)
	after := waitDevices(t, next, sf4, sf7, "cni", pf, vf2, vf3)[vf2]
	if got := after.Attributes["devinfo-cni.io/ifName"].StringValue; got == nil || *got != "enp3s0f0v2" {
		t.Errorf("got %v", after)
	}
	must(t, agent.Unprepare(t.Context(), "u1"))
	n.change(func() {})
	waitDevices(t, next, sf4, sf7, "cni", pf, vf3)
}

func TestPreparePutsDeviceIntoConfiguration(t *testing.T) {
	const vfio = `"driver":"vfio-pci",`
	for name, test := range map[string]struct {
		device, parameters string
		list, capability   string // parts of the configuration on record
		refusal            []string
	}{
		"VF":                 {vf0, network(`{"type":"sriov"}`), `"deviceID":"0000:03:00.2"`, "", nil},
		"SF":                 {sf4, network(`{"type":"host-device","capabilities":{"deviceID":true}}`), `"host-device"`, `"mlx5_core.sf.4"`, nil},
		"shared master":      {pf, network(`{"type":"macvlan"}`), `"master":"p0"`, "", nil},
		"as the class says":  {vf0, `"device":[{"plugin":"x","key":"device"}],` + network(`{"type":"x"}`), `"device":"enp3s0f0v0"`, "", nil},
		"nowhere":            {vf0, `"device":[],` + network(`{"type":"x"}`), `{"type":"x"}`, "", nil},
		"another device":     {vf0, network(`{"type":"sriov","deviceID":"0000:03:00.4"}`), "", "", []string{"0000:03:00.4", "0000:03:00.2", `request "r"`}},
		"not on the node":    {"pci-0000-09-00-0", network(`{"type":"sriov"}`), "", "", []string{"pci-0000-09-00-0", "has no device of that name"}},
		"not offered":        {"pci-0000-03-00-3", network(`{"type":"sriov"}`), "", "", []string{"does not offer it: it has no interface here, but " + sf7}},
		"software":           {"cni", `"device":[{"plugin":"x","key":"device"}],` + network(`{"type":"x"}`), "", "", []string{"cni is allocated"}},
		"without a network":  {vf0, "", "", "", []string{"has a config for driver"}},
		"a network of sorts": {"cni", network(`{"type":"x"}`), `{"type":"x"}`, "", nil},
		// Only exclusively allocated functions can have a driver.
		"driver, shared":       {pf, vfio + `"device":[],` + network(`{"type":"x"}`), "", "", []string{"driver: vfio-pci", pf, "which other pods share"}},
		"driver, SF":           {sf4, vfio + `"device":[],` + network(`{"type":"x"}`), "", "", []string{sf4, "not a PCI function"}},
		"driver, software":     {"cni", vfio + network(`{"type":"x"}`), "", "", []string{"networks without hardware"}},
		"driver, by interface": {vf0, vfio + `"device":[{"plugin":"x","key":"device"}],` + network(`{"type":"x"}`), "", "", []string{"has no value for device"}},
		"another driver":       {vf0, `"driver":"uio_pci_generic",` + network(`{"type":"x"}`), "", "", []string{`driver "uio_pci_generic" is not known`, `"vfio-pci"`}},
		"no driver":            {vf0, `"driver":"",` + network(`{"type":"x"}`), "", "", []string{"driver"}},
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, _ *plugins) {
			r.offer("mlx5-switchdev", "")
			agent := r.start()
			_, err := agent.Prepare(t.Context(), ownClaim("u1", test.device, test.parameters))
			var refusal *cniconfig.Refusal
			if errors.As(err, &refusal) != (test.refusal != nil) {
				t.Fatalf("got %v", err)
			}
			if test.refusal != nil {
				says(t, err, test.refusal...)
				r.expectNothing()
				return
			}
			at := r.attachment("u1")
			if !strings.Contains(string(at.List), test.list) || string(at.Capabilities["deviceID"]) != test.capability {
				t.Errorf("got %s, %s", at.List, at.Capabilities)
			}
		}))
	}
}

func TestNodeDeviceIsRejectedIfNoneIsOffered(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		r.start()
		r.prepareFails(ownClaim("u1", vf0, network(`{"type":"sriov"}`)), "this node offers no devices of its own")
	})
}

// Each device of a request becomes an interface with its own gate, metadata and status.
func TestEachDeviceOfRequestIsAttached(t *testing.T) {
	for name, change := range map[string]func(*resourceapi.ResourceClaim){
		"count": func(c *resourceapi.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly.Count = 2 },
		"all":   func(c *resourceapi.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly.AllocationMode = "All" },
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			r.offer("mlx5-switchdev", "")
			agent := r.start()
			claim := ownClaim("u1", vf0, network(`{"type":"sriov"}`))
			another := claim.Status.Allocation.Devices.Results[0]
			another.Device = vf2
			claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, another)
			change(claim)
			r.prepareFails(claim, `ifName "net1"`, `"net{index}"`)
			setIfName(claim, "net{index}")
			devices, err := agent.Prepare(t.Context(), claim)
			must(t, err)
			sb := r.runSandbox("s1", "pod")
			slices.Sort(p.started)
			difftest.Equal(t, p.started, []string{"ADD s1 net0", "ADD s1 net1"})
			gates := map[string]bool{}
			for n, at := range r.record("u1").Attachments {
				if want := []string{"0000:03:00.2", "0000:03:00.4"}[n]; !strings.Contains(string(at.List), want) {
					t.Errorf("device %d: %s", n, at.List)
				}
				gates[devices[n].CDIDeviceIDs[0]] = true
			}
			must(t, r.createContainer(sb, "u1_r", "u1_r_1"))
			last := r.metadata[len(r.metadata)-2:] // the devices of a request are written together
			for n, d := range last {
				if d.Metadata.NetworkData == nil || d.Metadata.NetworkData.InterfaceName != []string{"net0", "net1"}[n] {
					t.Errorf("metadata of device %d: %+v", n, d.Metadata)
				}
			}
			r.eventually("the status of both", func() bool { return len(r.lastReport().Devices) == 2 })
			if len(gates) != 2 {
				t.Errorf("gates %v", gates)
			}
			r.endAndUnprepare(sb, "u1")
		}))
	}
}

// The scheduler creates the claim of a pod with extended resources: one request for each container.
func TestTwoContainersWithLimitGetTwoInterfaces(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		of := func(container string) request {
			return request{name: container + "-request-0", device: "cni", share: "share-" + container, count: 1, ifName: "net{index}", parameters: network(`{"type":"x"}`)}
		}
		sb := r.attachPod(allocated("pod-extended-resources-abcde", "u1", "pod", of("container-0"), of("container-1")))
		slices.Sort(p.started)
		difftest.Equal(t, p.started, []string{"ADD s1 net0", "ADD s1 net1"})
		must(t, r.createContainer(sb, "u1_container-0-request-0", "u1_container-1-request-0"))
		r.endAndUnprepare(sb, "u1")
	})
}

// The scheduler must not allocate a device whose DEL failed. The driver does not offer the device while the
// claim exists or after the DEL was given up. The next process does not offer it either.
func TestDeviceWithFailedDELIsNotOffered(t *testing.T) {
	t.Parallel()
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	all, fewer := []string{sf4, sf7, "cni", pf, vf0, vf2, vf3}, []string{sf4, sf7, "cni", pf, vf0, vf3}
	client := apiServer(nil)
	r.startOffering(client, n, p)
	waitDevices(t, client, all...)
	p.setHook(failAll)
	r.prepare(ownClaim("u1", vf2, network(`{"type":"sriov"}`)))
	sb := r.sandbox("s1", "pod")
	if r.runPod(sb) == nil {
		t.Fatal("no error")
	}
	waitDevices(t, client, fewer...)
	r.endPod(sb)
	r.unprepare("u1")
	r.eventually("it is given up", func() bool { return r.agent.Census().Phases["Undeleted"] == 1 })
	waitDevices(t, client, fewer...)
	next := apiServer(nil)
	r.startOffering(next, n, p)
	waitDevices(t, next, fewer...)
	_, err := state.Clear(r.options.StateDir, "u1")
	must(t, err)
	waitDevices(t, next, all...)
}

// The scheduler may have allocated the device before the driver withheld it. Two claims may share a device that
// only the device information shows.
func TestRetriedDELDoesNotTakeDeviceFromAnotherClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		p.setHook(failSandbox("s1"))
		r.giveUpDEL(makeExclusive(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""})))
		r.prepare(makeExclusive(r.claimOf("b", "u2", "next", netRequest{"x", "net1", ""})))
		next := r.runSandbox("s2", "next")
		tried := p.calls("DEL s1")
		time.Sleep(5 * time.Hour)
		r.expectCalls("DEL s1", tried)
		r.endPod(next)
		r.unprepare("u2")
		p.setHook(nil)
		time.Sleep(2 * time.Hour)
		waitIdle()
		r.expectCalls("DEL s1", tried+1)
		r.expectPhase("Undeleted", 0)
		r.expectNothing()
	})
}
