package dra_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// Multus attaches a device with a resourceName: see inventory.ResourceName.
func TestDeviceWithResourceNameNeedsNoNetwork(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.offer("mlx5-switchdev", "")
		agent := r.start()
		devices, err := agent.Prepare(t.Context(), ownClaim("u1", vf3, ""))
		must(t, err)
		attributes := devices[0].Metadata.Attributes
		for name, want := range map[string]string{"k8s.cni.cncf.io/deviceID": "0000:03:00.5", "k8s.cni.cncf.io/resourceName": "example.com/vf", "resource.kubernetes.io/pciBusID": "0000:03:00.5"} {
			if got := attributes[name].StringValue; got == nil || *got != want {
				t.Errorf("%s: got %v", name, attributes[name])
			}
		}
		sb := r.attachPod(r.claimOf("z", "u2", "pod", netRequest{"x", "net1", ""}))
		r.expectFiles("cdi", 2)
		must(t, r.createContainer(sb, "u1_r_"+vf3))
		difftest.Equal(t, p.started, []string{"ADD s1 net1"})
		waitIdle() // until the driver writes nothing more
		must(t, os.RemoveAll(r.options.CDIDir))
		time.Sleep(2 * time.Minute)
		r.expectFiles("cdi", 2)
		r.start()
		r.prepare(ownClaim("u1", vf3, ""))
		r.endPod(sb)
		r.unprepare("u1")
		r.unprepare("u2")
		r.expectCalls("DEL", 1)
		r.expectNothing()
	})
}

// Readers of the status need not read ResourceSlices.
func TestStatusShowsDeviceOfClaim(t *testing.T) {
	vf := view.Device{Type: "pci", Device: "0000:03:00.2", PF: "0000:03:00.0", Representor: "eth4", RDMA: "mlx5_2"}
	for name, test := range map[string]struct {
		device, parameters string
		want               view.Device
	}{
		"a VF":              {vf0, network(`{"type":"sriov"}`), vf},
		"without a network": {vf3, "", view.Device{Type: "pci", Device: "0000:03:00.5", PF: "0000:03:00.0", Representor: "eth7"}},
		"an SF":             {sf4, network(`{"type":"host-device","capabilities":{"deviceID":true}}`), view.Device{PF: "0000:03:00.0", Representor: "en3f0pf0sf88", RDMA: "mlx5_7"}},
		"shared":            {pf, network(`{"type":"macvlan"}`), view.Device{Type: "pci", Device: "0000:03:00.0", RDMA: "mlx5_0"}},
	} {
		inBubble(t, func(t *testing.T, r *rig, p *plugins) {
			r.offer("mlx5-switchdev", "")
			r.start()
			r.attachPod(ownClaim("u1", test.device, test.parameters))
			waitIdle()
			report := r.lastReport()
			if len(report.Devices) != 1 || report.Devices[0].Data == nil {
				t.Fatalf("%s: %+v", name, report)
			}
			var data map[string]view.Device
			_ = json.Unmarshal(report.Devices[0].Data.Raw, &data) // data also has the keys of the CNI result
			difftest.Same(t, name, data[view.Key], test.want)
			if r.record("u1").StatusOwed {
				t.Errorf("%s: the status is still pending", name)
			}
		})
	}
}

// Multus assigns the devices to its networks by position, so a pod with two VFs has count: 2.
func TestRequestMayHaveSeveralDevicesWithoutNetwork(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.useJournal("mlx5-switchdev", strings.Replace(ownRules, `.vfIndex == 3`, `.vfIndex >= 0`, 1))
		agent := r.start()
		former := ownClaim("u0", vf0, "")
		former.Status.ReservedFor[0].UID = "uid-former"
		r.prepare(former)
		claim := ownClaim("u1", vf3, "")
		claim.Spec.Devices.Requests[0].Exactly.Count = 2
		second := claim.Status.Allocation.Devices.Results[0]
		second.Device = vf0
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, second)
		r.prepareFails(claim, vf0+" (0000:03:00.2) is held by claim ns/claim-u0")
		r.unprepare("u0")
		devices, err := agent.Prepare(t.Context(), claim)
		must(t, err)
		if len(devices) != 2 || devices[0].DeviceName != vf3 || devices[1].DeviceName != vf0 || slices.Equal(devices[0].CDIDeviceIDs, devices[1].CDIDeviceIDs) {
			t.Errorf("got %+v", devices)
		}
		sb := r.runSandbox("s1", "pod")
		r.expectFiles("cdi", 2)
		must(t, r.createContainer(sb, "u1_r_"+vf3, "u1_r_"+vf0))
		r.expectCalls("", 0)
		r.endAndUnprepare(sb, "u1")
	})
}

// No plugin of the chain writes device information.
func TestDriverDescribesDeviceThatNoPluginDescribes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.offer("mlx5-switchdev", "")
		agent := r.start()
		claim := ownClaim("u1", vf3, network(`{"type":"sriov"}`)) // the VF is bound to vfio-pci
		setIfName(claim, "net2")                                  // the captured pod has no net2
		sb := r.attachPod(claim)
		if at := r.attachment("u1"); at.PCI() != "0000:03:00.5" || len(r.files("info")) != 1 {
			t.Errorf("got %s, files %q", at.Info, r.files("info"))
		}
		file := filepath.Join(r.options.DeviceInfoDir, r.files("info")[0])
		difftest.Contains(t, r.spec(), file)
		r.mu.Lock()
		told := r.metadata[0].Metadata.Attributes
		r.mu.Unlock()
		if n := told["devinfo-cni.io/vfIndex"].IntValue; n == nil || *n != 3 || told["devinfo-cni.io/type"].StringValue == nil {
			t.Errorf("attributes of the slice or of the device information are missing: %v", told)
		}
		r.endPod(sb)
		must(t, agent.Unprepare(t.Context(), "u1"))
		r.expectNothing()
	})
}

// An administrator may have changed the directory since the ADD.
func TestDeviceInfoFileIsRemovedFromItsOriginalDirectory(t *testing.T) {
	r := newRig(t)
	r.start()
	sb := r.attachPod(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", "info"}))
	if n := len(r.files("info")); n != 1 {
		t.Fatalf("%d files", n)
	}
	r.options.DeviceInfoDir = filepath.Join(r.dir, "elsewhere")
	r.start()
	r.endAndUnprepare(sb, "u1")
}

// A user who can replace the file with a link chooses the file that the runtime mounts.
func TestDeviceInfoFileThatNonRootCanReplaceIsNotMounted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		r.offer("mlx5-switchdev", "")
		var asked []string
		r.options.Unexposed = func(root, dir string) error {
			asked = append(asked, root+" "+dir)
			return errors.New("it is theirs")
		}
		r.start()
		claim := ownClaim("u1", vf3, network(`{"type":"sriov"}`))
		setIfName(claim, "net2")
		r.attachPod(claim)
		const fact = `"DEVINFO_NET2_PCI_ADDRESS=0000:03:00.5"` // variables do not need the file
		if text := r.spec(); strings.Contains(text, r.options.DeviceInfoDir) || len(r.files("info")) != 1 || !strings.Contains(text, fact) {
			t.Error(text)
		}
		difftest.Equal(t, asked, []string{"/ " + r.options.DeviceInfoDir})
	})
}

// spec returns the CDI spec of the only gate.
func (r *rig) spec() string {
	r.t.Helper()
	return difftest.Read(r.t, filepath.Join(r.options.CDIDir, r.files("cdi")[0]))
}

// Multus may have attached the device of a claim without a network.
func TestDELIsNotRetriedWhileClaimWithoutNetworkHasDevice(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.useJournal("mlx5-switchdev", "")
		r.start()
		p.setHook(failAll)
		r.giveUpDEL(ownClaim("u1", vf3, network(`{"type":"sriov"}`)))
		var met atomic.Bool
		lineage := r.options.Devices.Lineage
		r.options.Devices.Lineage = func(device string) ([]sysfs.Object, error) {
			if !met.Swap(true) { // the claim has no lease yet
				time.Sleep(2 * time.Hour)
			}
			return lineage(device)
		}
		tried := p.calls("DEL")
		r.prepare(ownClaim("u2", vf3, ""))
		time.Sleep(5 * time.Hour)
		r.expectCalls("DEL", tried)
		r.expectPhase("Undeleted", 1)
		r.unprepare("u2")
		p.setHook(nil)
		time.Sleep(2 * time.Hour)
		r.expectNothing()
	})
}

// Device nodes and metadata need no network namespace.
func TestHostNetworkPodMayHaveDeviceWithoutNetwork(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		r.offer("mlx5-switchdev", "")
		r.start()
		r.prepare(ownClaim("u1", vf3, ""))
		sb := r.sandbox("s1", "pod")
		sb.Linux.Namespaces = nil
		must(t, r.runPod(sb))
		must(t, r.createContainer(sb, "u1_r_"+vf3))
		r.endAndUnprepare(sb, "u1")
	})
}
