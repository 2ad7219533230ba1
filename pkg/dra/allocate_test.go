package dra_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// The names of the gates are those of the requests.
func TestAlternativesOfRequestsAreAttached(t *testing.T) {
	onNode(t, func(t *testing.T, r *rig, p *plugins) {
		sb := r.attachPod(claimFor("u1", requestFor("r/vf", vf0, "net1", "sriov", 0), requestFor("s/lan", pf, "net2", "macvlan", 0)))
		r.expectFiles("cdi", 2)
		must(t, r.createContainer(sb, "u1_r", "u1_s"))
		for n, want := range []string{`r/vf "deviceID":"0000:03:00.2"`, `s/lan "master":"p0"`} {
			at := r.record("u1").Attachments[n]
			difftest.Contains(t, at.Request+" "+string(at.List), strings.Split(want, " ")...)
		}
	})
}

// Several pods may use one claim after another. The device and the rules may change between two pods.
func TestPrepareAgainChecksCurrentOffer(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.prepareVF0()
		p.setHook(failAll)
		r.giveUpDEL(ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
		r.expectPhase("Undeleted", 1)
		r.offer("mlx5-switchdev", "devices: []")
		r.start()
		waitIdle()
		r.prepareFails(ownClaim("u1", vf0, network(`{"type":"sriov"}`)), vf0, "does not offer it")
	})
}

func TestPreparePutsDeviceIntoConfiguration(t *testing.T) {
	words := strings.NewReplacer("VF", vf0, "SF", sf4, "PF", pf, "{NET,", `{"cniVersion":"1.0.0","name":"net",`)
	goldentest.Lines(t, "testdata/prepared.txt", func(line string) (got []string) {
		device, parameters, _ := strings.Cut(words.Replace(line), " ")
		inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
			r.offer("mlx5-switchdev", "")
			if _, err := r.start().Prepare(t.Context(), ownClaim("u1", device, parameters)); err != nil {
				refusal := difftest.As[*cniconfig.Refusal](t, err)
				got = []string{refusal.Rule, refusal.Remedy}
				r.expectNothing()
				return
			}
			at := r.attachment("u1")
			got = []string{fmt.Sprintf("%s, deviceID %q", at.List, at.Capabilities["deviceID"])}
		})
		return got
	})
}

func TestNodeDeviceIsRejectedIfNoneIsOffered(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		r.start()
		r.prepareFails(ownClaim("u1", vf0, network(`{"type":"sriov"}`)), "this node offers no devices of its own")
	})
}

// Each device of a request becomes an interface with its own gate, metadata and status.
func TestEachDeviceOfRequestIsAttached(t *testing.T) {
	onNode(t, func(t *testing.T, r *rig, p *plugins) {
		claim := ownClaim("u1", vf0, network(`{"type":"sriov"}`))
		another := claim.Status.Allocation.Devices.Results[0]
		another.Device = vf2
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, another)
		claim.Spec.Devices.Requests[0].Exactly.AllocationMode = "All"
		r.prepareFails(claim, `ifName "net1"`, `"net{index}"`)
		setIfName(claim, "net{index}")
		devices, err := r.agent.Prepare(t.Context(), claim)
		must(t, err)
		sb := r.runSandbox("s1", "pod")
		slices.Sort(p.started)
		difftest.Equal(t, p.started, []string{"ADD s1 net0", "ADD s1 net1"})
		must(t, r.createContainer(sb, "u1_r", "u1_r_1"))
		last := r.metadata[len(r.metadata)-2:] // the devices of a request are written together
		for n, address := range []string{"0000:03:00.2", "0000:03:00.4"} {
			difftest.Contains(t, string(r.record("u1").Attachments[n].List), address)
			difftest.Equal(t, devices[n].CDIDeviceIDs, []string{driverName + "/claim=" + []string{"u1_r", "u1_r_1"}[n]})
			difftest.Equal(t, last[n].Metadata.NetworkData.InterfaceName, fmt.Sprint("net", n))
		}
		difftest.Eventually(t, "the status of both", func() bool { return len(r.lastReport().Devices) == 2 })
		r.endAndUnprepare(sb, "u1")
	})
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
