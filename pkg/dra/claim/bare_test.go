package claim_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// Multus attaches a device with a resourceName: see inventory.ResourceName.
func TestDeviceWithResourceNameNeedsNoNetwork(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Offer("mlx5-switchdev", "")
		agent := r.Start()
		devices, err := agent.Prepare(t.Context(), dratest.DeviceClaim("u1", dratest.VF3, ""), 0)
		difftest.Must(t, err)
		attributes := devices[0].Metadata.Attributes
		for name, want := range map[string]string{"k8s.cni.cncf.io/deviceID": "0000:03:00.5", "k8s.cni.cncf.io/resourceName": "example.com/vf", "resource.kubernetes.io/pciBusID": "0000:03:00.5"} {
			difftest.Same(t, name, attributes[name].StringValue, &want)
		}
		difftest.Contains(t, string(r.Record("u1").Attachments[0].Info), "0000:03:00.5")
		r.ExpectFiles("dp", 0) // the device plugin's file is written only if the host is no capture, which may be of another node
		sb := r.AttachPod(r.ClaimOf("z", "u2", "pod", dratest.Net("x", "net1", "")))
		r.ExpectFiles("cdi", 2)
		difftest.Must(t, r.CreateContainer(sb, "u1_r_"+dratest.VF3))
		difftest.Equal(t, r.CallNames(), []string{"ADD s1 net1"})
		dratest.WaitIdle() // until the driver writes nothing more
		difftest.Must(t, os.RemoveAll(r.Options.CDIDir))
		time.Sleep(2 * time.Minute)
		r.ExpectFiles("cdi", 2)
		r.Start()
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, ""))
		r.EndPod(sb)
		r.Unprepare("u1")
		r.Unprepare("u2")
		r.ExpectCalls("DEL", 1)
		r.ExpectNothing()
	})
}

// Multus assigns the devices to its networks by position, so a pod with two VFs has count: 2.
func TestRequestMayHaveSeveralDevicesWithoutNetwork(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.UseJournal("mlx5-switchdev", strings.Replace(dratest.Rules, `.vfIndex == 3`, `.vfIndex >= 0`, 1))
		agent := r.Start()
		former := dratest.DeviceClaim("u0", dratest.VF0, "")
		former.Status.ReservedFor[0].UID = "uid-former"
		r.Prepare(former)
		claim := dratest.DeviceClaim("u1", dratest.VF3, "")
		claim.Spec.Devices.Requests[0].Exactly.Count = 2
		second := claim.Status.Allocation.Devices.Results[0]
		second.Device = dratest.VF0
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, second)
		r.PrepareFails(claim, dratest.VF0+" (0000:03:00.2) is held by claim ns/claim-u0")
		r.Unprepare("u0")
		devices, err := agent.Prepare(t.Context(), claim, 0)
		difftest.Must(t, err)
		if len(devices) != 2 || devices[0].DeviceName != dratest.VF3 || devices[1].DeviceName != dratest.VF0 || slices.Equal(devices[0].CDIDeviceIDs, devices[1].CDIDeviceIDs) {
			t.Errorf("got %+v", devices)
		}
		sb := r.RunSandbox("s1", "pod")
		r.ExpectFiles("cdi", 2)
		difftest.Must(t, r.CreateContainer(sb, "u1_r_"+dratest.VF3, "u1_r_"+dratest.VF0))
		r.ExpectCalls("", 0)
		r.EndAndUnprepare(sb, "u1")
	})
}

// One container may use several claims, whose requests may have the same name and several devices each.
func TestVariablesOfDevicesWithoutNetworkNameClaimAndRequest(t *testing.T) {
	named := func(claim *resourceapi.ResourceClaim, inPod string) *resourceapi.ResourceClaim {
		claim.Annotations = map[string]string{resourceapi.PodResourceClaimAnnotation: inPod}
		return claim
	}
	devices := []string{dratest.VF3, dratest.VF0} // 0000:03:00.5 without an RDMA device, and 0000:03:00.2
	claim := func(requests ...string) *resourceapi.ResourceClaim {
		var all []dratest.Request
		for n, name := range requests {
			all = append(all, dratest.Request{Name: name, Device: devices[n], Count: 2})
		}
		return dratest.Allocated("claim-u1", "u1", "pod", all...)
	}
	const first, second = "=pci-0000-03-00-5 _TYPE=pci _PCI_ADDRESS=0000:03:00.5", "=pci-0000-03-00-2 _TYPE=pci _PCI_ADDRESS=0000:03:00.2 _RDMA_DEVICE=mlx5_2"
	for _, test := range []struct {
		what             string
		claim            *resourceapi.ResourceClaim
		prefix1, prefix2 string
	}{
		{"claim that the pod names", claim("r", "s"), "DEVINFO_CLAIM_2DU1_REQUEST_R", "DEVINFO_CLAIM_2DU1_REQUEST_S"},
		{"an annotation that no template set", named(claim("r", "s"), "nics"), "DEVINFO_CLAIM_2DU1_REQUEST_R", "DEVINFO_CLAIM_2DU1_REQUEST_S"},
		{"from a template", dratest.FromTemplate(named(claim("r", "s"), "nics")), "DEVINFO_NICS_REQUEST_R", "DEVINFO_NICS_REQUEST_S"},
		{"from a template, with an annotation that is no name", dratest.FromTemplate(named(claim("r", "s"), "a=b")), "DEVINFO_CLAIM_2DU1_REQUEST_R", "DEVINFO_CLAIM_2DU1_REQUEST_S"},
		{"two devices", claim("r", "r"), "DEVINFO_CLAIM_2DU1_REQUEST_R", "DEVINFO_CLAIM_2DU1_REQUEST_R_2"},
		{"alternatives", claim("r-1/big", "r-1/big"), "DEVINFO_CLAIM_2DU1_REQUEST_R_2D1", "DEVINFO_CLAIM_2DU1_REQUEST_R_2D1_2"},
	} {
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			r.UseJournal("mlx5-switchdev", strings.Replace(dratest.Rules, `.vfIndex == 3`, `.vfIndex >= 0`, 1))
			r.Start()
			r.Prepare(test.claim)
			var got, want []string
			for _, file := range r.Files("cdi") {
				var s specs.Spec
				difftest.Must(t, json.Unmarshal([]byte(difftest.Read(t, filepath.Join(r.Options.CDIDir, file))), &s))
				got = append(got, s.Devices[0].ContainerEdits.Env...)
			}
			for prefix, values := range map[string]string{test.prefix1: first, test.prefix2: second} {
				for _, value := range strings.Fields(values) {
					want = append(want, prefix+value)
				}
				want = append(want, "DEVINFO_RDMA_DEVICES=mlx5_2:1")
			}
			difftest.Equal(t, slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
			r.Unprepare("u1")
		})
	}
}

// spec returns the CDI spec of the only gate.
func spec(r *dratest.Rig) string {
	r.T.Helper()
	return difftest.Read(r.T, filepath.Join(r.Options.CDIDir, r.Files("cdi")[0]))
}

// A pod that was deleted by force still runs and uses its device nodes.
func TestClaimWithoutNetworkHoldsDeviceExclusively(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, ""))
		for _, id := range []string{"pci-0000:03:00.5", "iommu-57"} {
			r.ExpectHolders(id, "claim ns/claim-u1")
		}
		gates := len(r.Files("cdi"))
		next := dratest.DeviceClaim("u2", dratest.VF3, "")
		next.Status.ReservedFor[0].UID = "uid-next"
		r.PrepareFails(next, "claim ns/claim-u2", dratest.VF3+" (0000:03:00.5) is held by claim ns/claim-u1")
		r.ExpectFiles("cdi", gates)
		r.Unprepare("u1")
		r.Prepare(next)
		r.ExpectHolders("pci-0000:03:00.5", "claim ns/claim-u2")
		r.Unprepare("u2")
		r.ExpectHolders("pci-0000:03:00.5")
		r.ExpectHolders("iommu-57")
		r.ExpectNothing()
	})
}

// The driver may have been killed after it wrote the record and before it had all leases.
func TestPreparedClaimTakesMissingLeases(t *testing.T) {
	for _, test := range []struct {
		host, rules, device string
		leases              []string
	}{
		{"mlx5-switchdev", "", dratest.VF3, []string{"pci-0000:03:00.5", "iommu-57"}},
		{"mlx5-infiniband", dratest.InfinibandRules, "pci-0000-17-00-1", []string{"pci-0000:17:00.1"}},
	} {
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			r.UseJournal(test.host, test.rules)
			r.Start()
			r.Prepare(dratest.DeviceClaim("u1", test.device, ""))
			dratest.WaitIdle()
			for _, id := range test.leases {
				difftest.Must(t, os.Remove(filepath.Join(r.Dir, "journal/leases/device", id, "u1")))
			}
			difftest.Must(t, os.RemoveAll(filepath.Join(r.Dir, "cdi")))
			r.Prepare(dratest.DeviceClaim("u1", test.device, ""))
			for _, id := range test.leases {
				r.ExpectHolders(id, "claim ns/claim-u1")
			}
		})
	}
}

// The kubelet does not unprepare a claim that was never prepared.
func TestClaimThatCannotBeRecordedHasNeitherGateNorLease(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		difftest.Must(t, os.MkdirAll(filepath.Join(r.Options.StateDir, "u1.json", "busy"), 0o700))
		r.PrepareFails(dratest.DeviceClaim("u1", dratest.VF3, ""), "record claim")
		leases, err := r.Options.Devices.Journal.Claims()
		difftest.Must(t, err)
		difftest.Equal(t, len(leases), 0)
		r.ExpectFiles("cdi", 0)
	})
}

// Multus may give the device to the pod of the claim, but not to another pod.
func TestClaimWithoutNetworkIsNotPreparedWhileMultusHoldsItsDevice(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		group := dratest.MultusEntry(r.Sandbox("s0", "other"), dratest.ExclusiveLease("iommu-57"))
		r.RecordMultus(group)
		r.PrepareFails(dratest.DeviceClaim("u1", dratest.VF3, ""), "is held by")
		r.Unprepare("u1")
		r.ExpectNothing() // also no device plugin's file, which is written before the lease
		r.PrepareFails(dratest.DeviceClaim("u1", dratest.VF3, ""), "IOMMU group 57", "is held by pod ns/other")
		difftest.Must(t, r.Options.Devices.Journal.Forget(group))
		r.RecordMultus(dratest.MultusEntry(r.Sandbox("s1", "pod"), dratest.ExclusiveLease("pci-0000:03:00.5")))
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, ""))
	})
}

// With hostUsers: false the runtime bind-mounts device nodes of the host. Their owner does not exist in the
// user namespace. A device node of an IOMMU group gives access to all devices of the group, so the claim leases it.
func TestUserNamespaceGetsOnlyWorldAccessibleDeviceNodes(t *testing.T) {
	for parameters, opened := range map[string]int{"": 2, dratest.Network(`{"type":"sriov"}`): 1} { // number of times that the gate is opened; without a network it opens before the sandbox is known
		for _, hostUsers := range []bool{true, false} {
			dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
				r.UseJournal("mlx5-switchdev", "")
				r.Options.Devices.DeviceNodes = func(path string) (cdispec.DeviceNode, error) {
					return cdispec.DeviceNode{Path: path, Type: "c", Perm: map[string]fs.FileMode{"/dev/vfio/57": 0o600, "/dev/vfio/vfio": 0o666}[path]}, nil
				}
				var log bytes.Buffer
				r.Options.Log = slog.New(slog.NewTextHandler(&log, nil))
				opens := 0
				r.Options.Reached = func(name string) {
					if name == "gate open" {
						opens++
					}
				}
				r.Start()
				claim := dratest.DeviceClaim("u1", dratest.VF3, parameters)
				if parameters != "" {
					dratest.SetIfName(claim, "net2") // the captured pod has no net2
				}
				r.Prepare(claim)
				sb := r.Sandbox("s1", "pod")
				if !hostUsers {
					sb.Linux.Namespaces = append(sb.Linux.Namespaces, &api.LinuxNamespace{Type: "user"})
				}
				difftest.Must(t, r.RunPod(sb))
				r.ExpectHolders("iommu-57", "claim ns/claim-u1")
				time.Sleep(time.Hour) // until the worker has checked the gate again
				dratest.WaitIdle()
				if !hostUsers {
					difftest.Equal(t, opens, opened)
				}
				difftest.Equal(t, strings.Contains(spec(r), "/dev/vfio/57"), hostUsers)
				difftest.Equal(t, strings.Contains(spec(r), "/dev/vfio/vfio"), true)

				given, described := spec(r), len(r.Metadata)
				for _, list := range []func(){func() { r.Start() }, func() { r.ListSandboxes(sb) }} { // the next driver learns of the sandbox later
					list()
					time.Sleep(time.Hour)
					dratest.WaitIdle()
					difftest.Equal(t, spec(r), given)
				}
				difftest.Equal(t, len(r.Metadata), described)
				r.Options.Gate += "-2" // so that the next driver writes the spec again
				r.Start()
				time.Sleep(time.Hour)
				dratest.WaitIdle()
				refused := strings.Contains(log.String(), "device=/dev/vfio/57") && strings.Contains(log.String(), "it has mode 0600") && strings.Contains(log.String(), "hostUsers: true")
				difftest.Equal(t, refused, !hostUsers)
				r.ListSandboxes(sb)
				r.EndAndUnprepare(sb, "u1")
				r.ExpectHolders("iommu-57")
			})
		}
	}
}

// An InfiniBand function without IPoIB has no interface.
func TestClaimOfRDMADeviceWithoutInterfaceGetsDeviceNodes(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		const vf = "pci-0000-17-00-1"
		r.UseJournal("mlx5-infiniband", dratest.InfinibandRules)
		r.Options.Devices.Settings = func() (config.Node, error) { return config.Node{}, nil }
		agent := r.Start()
		devices, err := agent.Prepare(t.Context(), dratest.DeviceClaim("u1", vf, ""), 0)
		difftest.Must(t, err)
		attributes := devices[0].Metadata.Attributes
		difftest.Equal(t, attributes["devinfo-cni.io/rdmaDevice"].StringValue, new("mlx5_1"))
		difftest.Equal(t, attributes["devinfo-cni.io/rdmaDevices"].StringValues, []string{"mlx5_1"})
		var nodes []string
		for _, word := range strings.Split(spec(r), `"`) {
			if strings.HasPrefix(word, "/dev/") {
				nodes = append(nodes, word)
			}
		}
		difftest.Equal(t, nodes, []string{"/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm"})
		difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
		r.EndAndUnprepare(r.Sandbox("s1", "pod"), "u1")
	})
}
