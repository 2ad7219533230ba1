package devices_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// The names of the gates are those of the requests.
func TestAlternativesOfRequestsAreAttached(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		sb := r.AttachPod(dratest.ClaimFor("u1", dratest.RequestFor("r/vf", dratest.VF0, "net9", "sriov"), dratest.RequestFor("s/lan", dratest.PF, "net2", "macvlan")))
		r.ExpectFiles("cdi", 2)
		difftest.Must(t, r.CreateContainer(sb, "u1_r", "u1_s"))
		for n, want := range []string{`r/vf "deviceID":"0000:03:00.2"`, `s/lan "master":"p0"`} {
			at := r.Record("u1").Attachments[n]
			difftest.Contains(t, at.Request+" "+string(at.List), strings.Split(want, " ")...)
		}
		r.ExpectHolders("iommu-") // their device nodes are in no group
	})
}

// Several pods may use one claim after another. The device and the rules may change between two pods.
func TestPrepareAgainChecksCurrentOffer(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`)))
		r.Plugins.SetHook(dratest.Fail("", ""))
		r.GiveUpDEL(dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`)))
		r.ExpectPhase("Undeleted", 1)
		r.Offer("mlx5-switchdev", "devices: []")
		r.Start()
		dratest.WaitIdle()
		r.PrepareFails(dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`)), dratest.VF0, "does not offer it")
	})
}

func TestPreparePutsDeviceIntoConfiguration(t *testing.T) {
	words := strings.NewReplacer("VF", dratest.VF0, "SF", dratest.SF4, "PF", dratest.PF, "{NET,", `{"cniVersion":"1.0.0","name":"net",`)
	goldentest.Lines(t, "testdata/prepared.txt", func(line string) (got []string) {
		device, parameters, _ := strings.Cut(words.Replace(line), " ")
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			r.Offer("mlx5-switchdev", "")
			if _, err := r.Start().Prepare(t.Context(), dratest.DeviceClaim("u1", device, parameters), 0); err != nil {
				refusal := difftest.As[*cniconfig.Refusal](t, err)
				got = []string{refusal.Rule, refusal.Remedy}
				r.ExpectNothing()
				return
			}
			at := r.Record("u1").Attachments[0]
			got = []string{fmt.Sprintf("%s, deviceID %q", at.List, at.Capabilities["deviceID"])}
		})
		return got
	})
}

// Each device of a request becomes an interface with its own gate, metadata and status.
func TestEachDeviceOfRequestIsAttached(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		claim := dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`))
		another := claim.Status.Allocation.Devices.Results[0]
		another.Device = dratest.VF2
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, another)
		claim.Spec.Devices.Requests[0].Exactly.AllocationMode = "All"
		r.PrepareFails(claim, `ifName "net1"`, `"net{index}"`)
		dratest.SetIfName(claim, "net{index}")
		devices, err := r.Agent.Prepare(t.Context(), claim, 0)
		difftest.Must(t, err)
		sb := r.RunSandbox("s1", "pod")
		difftest.Equal(t, slices.Sorted(slices.Values(r.CallNames())), []string{"ADD s1 net0", "ADD s1 net1"})
		difftest.Must(t, r.CreateContainer(sb, "u1_r", "u1_r_1"))
		told := r.Metadata
		last := told[len(told)-2:] // the devices of a request are written together
		for n, address := range []string{"0000:03:00.2", "0000:03:00.4"} {
			difftest.Contains(t, string(r.Record("u1").Attachments[n].List), address)
			difftest.Equal(t, devices[n].CDIDeviceIDs, []string{dratest.Driver + "/claim=" + []string{"u1_r", "u1_r_1"}[n]})
			difftest.Equal(t, last[n].Metadata.NetworkData.InterfaceName, fmt.Sprint("net", n))
		}
		difftest.Eventually(t, "the status of both", func() bool { return len(r.LastReport().Devices) == 2 })
		r.EndAndUnprepare(sb, "u1")
	})
}

// Publishing reads the node. Prepare reads it again only if the published slices are not enough.
func TestPrepareReadsNodeOnlyIfNecessary(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		n, reads := r.Offer("mlx5-switchdev", ""), 0
		read := r.Options.Devices.Inventory.Host
		r.Options.Devices.Inventory.Host = func() (inventory.Host, error) { reads++; return read() }
		agent := r.Start()
		dratest.Survey(agent)
		prepare := func(claim, device, parameters, why string, want int) {
			t.Helper()
			asked := dratest.DeviceClaim(claim, device, parameters)
			dratest.SetIfName(asked, "if-"+claim)
			_, err := agent.Prepare(t.Context(), asked, 0)
			if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
				t.Errorf("%s: got %v, want %q", device, err, why)
			}
			difftest.Same(t, "reads of the node for "+device, reads, want)
		}
		prepare("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`), "", 1)
		prepare("u2", dratest.SF7, dratest.Network(`{"type":"host-device","capabilities":{"deviceID":true}}`), "", 1)
		prepare("u3", "pci-0000-03-00-3", dratest.Network(`{"type":"sriov"}`), "does not offer it", 2)
		n.Others = map[string]string{"0000:03:00.4": "pod ns/x has it"}
		prepare("u4", dratest.VF2, dratest.Network(`{"type":"sriov"}`), "pod ns/x has it", 3)
		prepare("u5", "pci-0000-09-00-0", dratest.Network(`{"type":"sriov"}`), "no device of that name", 4)
	})
}

// Pods can share the device with any other user, so Prepare needs no external allocations after the first survey.
func TestSharedDeviceIsPreparedWithoutExternalAllocations(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Offer("mlx5-switchdev", "")
		r.Options.Devices.Inventory.Others = func(context.Context) (map[string]string, error) {
			time.Sleep(10 * time.Second)
			return nil, errors.New("the kubelet does not answer")
		}
		agent := r.Start()
		for n, uid := range []string{"u1", "u2"} {
			began := time.Now()
			r.Prepare(dratest.DeviceClaim(uid, dratest.PF, dratest.Network(`{"type":"macvlan"}`)))
			if took := time.Since(began); n > 0 && took > time.Second {
				t.Errorf("it takes %v", took)
			}
			r.PrepareFails(dratest.DeviceClaim("u3", dratest.VF0, dratest.Network(`{"type":"sriov"}`)), "the kubelet does not answer")
			difftest.Must(t, agent.Unprepare(t.Context(), uid))
			dratest.Survey(agent)
		}
	})
}

func TestRecordWithInvalidPartIsRefused(t *testing.T) {
	for _, part := range []string{
		`{"node":{"published":{"name":"vf","attributes":["ifName"]}},"metadata":{}}`,
		`{"node":{"published":{"name":"vf"}},"metadata":{"networkData":{"interfaceName":["net1"]}}}`,
		`{"note":{"bus":1}}`,
	} {
		var at state.Attachment
		difftest.Must(t, json.Unmarshal([]byte(part), &at))
		at.Request = "nic"
		record := &state.Claim{Attachments: []state.Attachment{{Request: "bare"}, at}}
		difftest.Says(t, devices.CheckRecord(record), `request "nic": json: cannot unmarshal`)
		record.Undeleted, record.Attachments = record.Attachments, nil
		difftest.Says(t, devices.CheckRecord(record), `request "nic": json: cannot unmarshal`)
	}
	valid := state.NodeDevice{Published: config.Encode(map[string]string{"name": "vf"})}
	difftest.Must(t, devices.CheckRecord(&state.Claim{Attachments: []state.Attachment{{NodeDevice: &valid}}}))
	difftest.Equal(t, devices.Published(&valid).Name, "vf")
}

// The information is about the attachment itself, so what is published about another device says nothing of it.
func TestPublishedFactsFillGapsOfInformation(t *testing.T) {
	const slice = `{"attributes":{"resource.kubernetes.io/pciBusID":{"string":"0000:03:00.2"},"devinfo-cni.io/pfPCIBusID":{"string":"0000:03:00.0"},
		"devinfo-cni.io/representor":{"string":"eth4"},"devinfo-cni.io/rdmaDevice":{"string":"mlx5_2"}}}`
	vf := view.Device{Type: "pci", Device: "0000:03:00.2", PF: "0000:03:00.0", Representor: "eth4", RDMA: "mlx5_2"}
	other := vf
	other.Representor = "eth9"
	for info, want := range map[string]view.Device{
		"": vf,
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.2","representor-device":"eth9"}}`: other,
		`{"type":"memif","version":"1.1.0","memif":{"role":"slave","path":"/run/m","mode":"ip"}}`:           {Type: "memif", Device: "/run/m"},
	} {
		at := state.Attachment{NodeDevice: &state.NodeDevice{Published: []byte(slice)}}
		at.Info = []byte(info)
		difftest.Same(t, info, devices.Shown(&at), want)
		at.NodeDevice = nil
		difftest.Same(t, info+", not published", devices.Shown(&at).RDMA, "")
	}
	sf := state.Attachment{NodeDevice: &state.NodeDevice{Published: []byte(`{"attributes":{"devinfo-cni.io/rdmaDevice":{"string":"mlx5_7"}}}`)}}
	difftest.Same(t, "an SF, which has no PCI address", devices.Shown(&sf), view.Device{RDMA: "mlx5_7"})
}
