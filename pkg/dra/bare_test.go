package dra_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/core/cdispec"
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
			difftest.Same(t, name, attributes[name].StringValue, &want)
		}
		difftest.Contains(t, string(r.attachment("u1").Info), "0000:03:00.5")
		r.expectFiles("dp", 0) // the device plugin's file is written only if the host is no capture, which may be of another node
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

// spec returns the CDI spec of the only gate.
func (r *rig) spec() string {
	r.t.Helper()
	return difftest.Read(r.t, filepath.Join(r.options.CDIDir, r.files("cdi")[0]))
}

// A pod that was deleted by force still runs and uses its device nodes.
func TestClaimWithoutNetworkHoldsDeviceExclusively(t *testing.T) {
	onNode(t, func(t *testing.T, r *rig, _ *plugins) {
		r.prepare(ownClaim("u1", vf3, ""))
		for _, id := range []string{"pci-0000:03:00.5", "iommu-57"} {
			r.expectHolders(id, "claim ns/claim-u1")
		}
		gates := len(r.files("cdi"))
		next := ownClaim("u2", vf3, "")
		next.Status.ReservedFor[0].UID = "uid-next"
		r.prepareFails(next, "claim ns/claim-u2", vf3+" (0000:03:00.5) is held by claim ns/claim-u1")
		r.expectFiles("cdi", gates)
		r.unprepare("u1")
		r.prepare(next)
		r.expectHolders("pci-0000:03:00.5", "claim ns/claim-u2")
		r.unprepare("u2")
		r.expectHolders("pci-0000:03:00.5")
		r.expectHolders("iommu-57")
		r.expectNothing()
	})
}

// The driver may have been killed after it wrote the record and before it had all leases.
func TestPreparedClaimTakesMissingLeases(t *testing.T) {
	for _, test := range []struct {
		host, rules, device string
		leases              []string
	}{
		{"mlx5-switchdev", "", vf3, []string{"pci-0000:03:00.5", "iommu-57"}},
		{"mlx5-infiniband", infinibandRules, "pci-0000-17-00-1", []string{"pci-0000:17:00.1"}},
	} {
		inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
			r.useJournal(test.host, test.rules)
			r.start()
			r.prepare(ownClaim("u1", test.device, ""))
			waitIdle()
			for _, id := range test.leases {
				must(t, os.Remove(filepath.Join(r.dir, "journal/leases/device", id, "u1")))
			}
			must(t, os.RemoveAll(filepath.Join(r.dir, "cdi")))
			r.prepare(ownClaim("u1", test.device, ""))
			for _, id := range test.leases {
				r.expectHolders(id, "claim ns/claim-u1")
			}
		})
	}
}

// The kubelet does not unprepare a claim that was never prepared.
func TestClaimThatCannotBeRecordedHasNeitherGateNorLease(t *testing.T) {
	onNode(t, func(t *testing.T, r *rig, _ *plugins) {
		must(t, os.MkdirAll(filepath.Join(r.options.StateDir, "u1.json", "busy"), 0o700))
		r.prepareFails(ownClaim("u1", vf3, ""), "record claim")
		leases, err := r.options.Devices.Journal.Claims()
		must(t, err)
		difftest.Equal(t, len(leases), 0)
		r.expectFiles("cdi", 0)
	})
}

// Multus may give the device to the pod of the claim, but not to another pod.
func TestClaimWithoutNetworkIsNotPreparedWhileMultusHoldsItsDevice(t *testing.T) {
	onNode(t, func(t *testing.T, r *rig, _ *plugins) {
		r.sandbox("s0", "other")
		group := multusEntry("other", "s0", r.netns("s0"), exclusiveLease("iommu-57"))
		r.recordMultus(group)
		r.prepareFails(ownClaim("u1", vf3, ""), "is held by")
		r.unprepare("u1")
		r.expectNothing() // also no device plugin's file, which is written before the lease
		r.prepareFails(ownClaim("u1", vf3, ""), "IOMMU group 57", "is held by pod ns/other")
		must(t, r.options.Devices.Journal.Forget(group))
		r.sandbox("s1", "pod")
		r.recordMultus(multusEntry("pod", "s1", r.netns("s1"), exclusiveLease("pci-0000:03:00.5")))
		r.prepare(ownClaim("u1", vf3, ""))
	})
}

// With hostUsers: false the runtime bind-mounts device nodes of the host. Their owner does not exist in the
// user namespace. A device node of an IOMMU group gives access to all devices of the group, so the claim leases it.
func TestUserNamespaceGetsOnlyWorldAccessibleDeviceNodes(t *testing.T) {
	for parameters, opened := range map[string]int{"": 2, network(`{"type":"sriov"}`): 1} { // number of times that the gate is opened; without a network it opens before the sandbox is known
		for _, hostUsers := range []bool{true, false} {
			inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
				r.useJournal("mlx5-switchdev", "")
				r.options.Devices.Granter.Nodes = func(path string) (cdispec.DeviceNode, error) {
					return cdispec.DeviceNode{Path: path, Type: "c", Perm: map[string]fs.FileMode{"/dev/vfio/57": 0o600, "/dev/vfio/vfio": 0o666}[path]}, nil
				}
				var log bytes.Buffer
				r.options.Log = slog.New(slog.NewTextHandler(&log, nil))
				opens := 0
				r.reached = func(name string) {
					if name == "gate open" {
						opens++
					}
				}
				r.start()
				claim := ownClaim("u1", vf3, parameters)
				if parameters != "" {
					setIfName(claim, "net2") // the captured pod has no net2
				}
				r.prepare(claim)
				sb := r.sandbox("s1", "pod")
				if !hostUsers {
					sb.Linux.Namespaces = append(sb.Linux.Namespaces, &api.LinuxNamespace{Type: "user"})
				}
				must(t, r.runPod(sb))
				r.expectHolders("iommu-57", "claim ns/claim-u1")
				time.Sleep(time.Hour) // until the worker has checked the gate again
				waitIdle()
				if !hostUsers {
					difftest.Equal(t, opens, opened)
				}
				difftest.Equal(t, strings.Contains(r.spec(), "/dev/vfio/57"), hostUsers)
				difftest.Equal(t, strings.Contains(r.spec(), "/dev/vfio/vfio"), true)
				refused := strings.Contains(log.String(), "device=/dev/vfio/57") && strings.Contains(log.String(), "it has mode 0600") && strings.Contains(log.String(), "hostUsers: true")
				difftest.Equal(t, refused, !hostUsers)
				r.endAndUnprepare(sb, "u1")
				r.expectHolders("iommu-57")
			})
		}
	}
}

// An InfiniBand function without IPoIB has no interface.
func TestClaimOfRDMADeviceWithoutInterfaceGetsDeviceNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		const vf = "pci-0000-17-00-1"
		r.useJournal("mlx5-infiniband", infinibandRules)
		agent := r.start()
		devices, err := agent.Prepare(t.Context(), ownClaim("u1", vf, ""))
		must(t, err)
		difftest.Equal(t, devices[0].Metadata.Attributes["devinfo-cni.io/rdmaDevice"].StringValue, new("mlx5_1"))
		var nodes []string
		for _, word := range strings.Split(r.spec(), `"`) {
			if strings.HasPrefix(word, "/dev/") {
				nodes = append(nodes, word)
			}
		}
		difftest.Equal(t, nodes, []string{"/dev/infiniband/uverbs1", "/dev/infiniband/issm1", "/dev/infiniband/umad1", "/dev/infiniband/rdma_cm"})
		must(t, r.runPod(r.sandbox("s1", "pod")))
		r.endAndUnprepare(r.sandbox("s1", "pod"), "u1")
	})
}
