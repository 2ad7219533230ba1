package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/test/difftest"
)

const driver = "cni.dra.networking.x-k8s.io"

func pod(namespace, name, status string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}}
	p.Spec.NodeName = "n1"
	if status != "" {
		p.Annotations = map[string]string{cluster.StatusAnnotation: status}
	}
	return p
}

var equal = difftest.Same

const dpdkStatus = `[
	{"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.5"], "default": true, "dns": {}},
	{"name": "shop/sriov", "interface": "net1", "mac": "02:00:00:00:00:01", "dns": {},
	 "device-info": {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.5",
	  "pf-pci-address": "0000:03:00.0", "representor-device": "eth7", "rdma-device": "mlx5_5,mlx5_6"}}},
	{"name": "shop/vdpa", "interface": "net2", "dns": {},
	 "device-info": {"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost",
	  "path": "/dev/vhost-vdpa-0", "pci-address": "0000:65:00.3"}}},
	{"name": "shop/sock", "interface": "net3", "dns": {},
	 "device-info": {"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "server", "path": "/run/vhost/net3"}}}
]`

// claim returns a claim that has a device of the driver and is reserved for a pod.
func claim(namespace, name, pod string, device resourceapi.AllocatedDeviceStatus) resourceapi.ResourceClaim {
	c := resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: types.UID("uid-" + pod)}}
	device.Driver, device.Pool, device.Device = driver, "n1", "cni"
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{device}
	allocation := &resourceapi.AllocationResult{}
	allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{{Request: "net", Driver: driver, Pool: "n1", Device: "cni"}}
	allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{
		{Requests: []string{"other"}, DeviceConfiguration: opaque(`{"config": {"name": "wrong"}}`)},
		{Requests: []string{"net"}, DeviceConfiguration: opaque(`{"kind": "CNIConfig", "config": {"name": "sriov-b"}}`)},
	}
	c.Status.Allocation = allocation
	return c
}

func opaque(parameters string) resourceapi.DeviceConfiguration {
	return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
		Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
	}}
}

var ready = resourceapi.AllocatedDeviceStatus{
	Data: &runtime.RawExtension{Raw: []byte(`{"cniVersion": "1.1.0", "interfaces": [
		{"name": "eth5"}, {"name": "net1", "sandbox": "/run/netns/a", "pciID": "0000:03:00.6"}]}`)},
	NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: "02:00:00:00:00:02", IPs: []string{"10.9.0.2/24"}},
}

// list returns the attachments in these objects.
func list(pods []corev1.Pod, claims []resourceapi.ResourceClaim) []cluster.Network {
	v := new(cluster.View)
	for n := range pods {
		v.Pod(&pods[n])
	}
	for n := range claims {
		v.Claim(&claims[n])
	}
	return v.Attachments()
}

func all() []cluster.Network {
	failed := resourceapi.AllocatedDeviceStatus{Conditions: []metav1.Condition{
		{Type: "Ready", Status: "False", Reason: "NetworkInterfaceNotReady", Message: "macvaln: not installed"},
	}}
	return list(
		[]corev1.Pod{pod("shop", "web", ""), pod("shop", "dpdk", dpdkStatus), pod("lab", "broken", `[{`), pod("lab", "bad", `[{"name":"x","interface":"net1","device-info":[]}]`)},
		[]resourceapi.ResourceClaim{
			claim("shop", "web-net", "web", ready), claim("shop", "web-typo", "web", failed),
			claim("lab", "of-another-namespace", "web", ready), claim("shop", "of-nobody", "gone", ready),
		})
}

func TestListCombinesPodsAndClaims(t *testing.T) {
	want := []cluster.Network{
		{Namespace: "lab", Pod: "bad", Node: "n1", Network: "x", Interface: "net1", Problem: "any"},
		{Namespace: "lab", Pod: "broken", Node: "n1", Problem: "any"},
		{Namespace: "shop", Pod: "dpdk", Node: "n1", Network: "shop/sriov", Interface: "net1", MAC: "02:00:00:00:00:01",
			Device: view.Device{Type: "pci", Device: "0000:03:00.5", PF: "0000:03:00.0", Representor: "eth7", RDMA: "mlx5_5,mlx5_6"}},
		{Namespace: "shop", Pod: "dpdk", Node: "n1", Network: "shop/vdpa", Interface: "net2",
			Device: view.Device{Type: "vdpa", Device: "vdpa0", Path: "/dev/vhost-vdpa-0", PCI: "0000:65:00.3"}},
		{Namespace: "shop", Pod: "dpdk", Node: "n1", Network: "shop/sock", Interface: "net3", Device: view.Device{Type: "vhost-user", Device: "/run/vhost/net3"}},
		{Namespace: "shop", Pod: "web", Node: "n1", Network: "sriov-b", Claim: "web-typo", Driver: driver,
			Problem: "NetworkInterfaceNotReady: macvaln: not installed"},
		{Namespace: "shop", Pod: "web", Node: "n1", Network: "sriov-b", Interface: "net1", MAC: "02:00:00:00:00:02",
			IPs: []string{"10.9.0.2/24"}, Device: view.Device{Type: "pci", Device: "0000:03:00.6"}, Claim: "web-net", Driver: driver},
	}
	got := all()
	for n := range got {
		if got[n].Namespace == "lab" {
			if got[n].Problem == "" {
				t.Errorf("%s: no problem", got[n].Pod)
			}
			got[n].Problem = "any"
		}
	}
	equal(t, "the list", got, want, cmpopts.IgnoreFields(cluster.Network{}, "DeviceInfo"))
}

// cni-dra-driver writes the device into the status, also for a claim without a network.
func TestClaimStatusNamesDevice(t *testing.T) {
	said := `"devinfo-cni.io/device": {"type": "pci", "device": "0000:03:00.6", "pf": "0000:03:00.0", "representor": "eth8", "rdma": "mlx5_6"}`
	attached := ready
	attached.Data = &runtime.RawExtension{Raw: []byte(`{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/a", "pciID": "0000:03:00.6"}], ` + said + `}`)}
	bare := claim("shop", "nodes", "web", resourceapi.AllocatedDeviceStatus{Data: &runtime.RawExtension{Raw: []byte("{" + said + "}")}})
	bare.Status.Allocation.Devices.Config = nil
	web := pod("shop", "web", "")
	v := new(cluster.View)
	v.Pod(&web)
	for _, c := range []resourceapi.ResourceClaim{claim("shop", "web-net", "web", attached), bare} {
		v.Claim(&c)
	}
	want := cluster.Network{Namespace: "shop", Pod: "web", Node: "n1", Driver: driver, Claim: "nodes",
		Device: view.Device{Type: "pci", Device: "0000:03:00.6", PF: "0000:03:00.0", Representor: "eth8", RDMA: "mlx5_6"}}
	net := want
	net.Claim, net.Network, net.Interface, net.MAC, net.IPs = "web-net", "sriov-b", "net1", "02:00:00:00:00:02", []string{"10.9.0.2/24"}
	equal(t, "by their claims", v.Attachments(), []cluster.Network{want, net})
}

// The status of a claim does not name the pod that has the network.
func TestSharedClaimIsAProblem(t *testing.T) {
	shared := claim("shop", "one", "a", ready)
	shared.Status.ReservedFor = append(shared.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "b", UID: "uid-b"})
	got := list([]corev1.Pod{pod("shop", "a", ""), pod("shop", "b", "")}, []resourceapi.ResourceClaim{shared})
	if len(got) != 2 || got[0].Problem != "claim one is reserved for 2 pods, and only one at a time has its network" || got[1].Problem != got[0].Problem {
		t.Errorf("%+v", got)
	}
}

func TestEndedPodHasNoAttachments(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]int{corev1.PodPending: 4, corev1.PodRunning: 4, corev1.PodUnknown: 4, corev1.PodSucceeded: 0, corev1.PodFailed: 0} {
		p := pod("shop", "dpdk", dpdkStatus)
		p.Status.Phase = phase
		if got := list([]corev1.Pod{p}, []resourceapi.ResourceClaim{claim("shop", "net", "dpdk", ready)}); len(got) != want {
			t.Errorf("%s: %+v", phase, got)
		}
	}
}

func TestHoldersFindsDeviceByAnyName(t *testing.T) {
	for device, want := range map[string][]string{
		"0000:03:00.5":      {"dpdk net1"},
		"03:00.5":           {"dpdk net1"},
		"0000:03:00.0":      {"dpdk net1"}, // the PF
		"eth7":              {"dpdk net1"},
		"mlx5_6":            {"dpdk net1"},
		"vdpa0":             {"dpdk net2"},
		"65:00.3":           {"dpdk net2"},
		"/run/vhost/net3":   {"dpdk net3"},
		"02:00:00:00:00:02": {"web net1"},
		"10.9.0.2":          {"web net1"},
		"0000:03:00.6":      {"web net1"},
		"0000:03:00.7":      nil,
		"":                  nil,
	} {
		var got []string
		for _, a := range cluster.Holders(all(), device) {
			got = append(got, a.Pod+" "+a.Interface)
		}
		equal(t, device, got, want)
	}
}

// The pod names its claims, so the program reads only these claims.
func TestClaimsAreNamedInPod(t *testing.T) {
	p := pod("shop", "web", "")
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: new("own")}, {Name: "b", ResourceClaimTemplateName: new("t")}}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: new("made")}, {Name: "c"}}
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"}
	v := new(cluster.View)
	v.Pod(&p)
	var got []string
	for _, c := range v.Claims() {
		got = append(got, c.String())
	}
	equal(t, "the claims", got, []string{"shop/extended", "shop/made", "shop/own"})
}

func TestPodWaitingForNetworksIsListed(t *testing.T) {
	waits := pod("shop", "web", "")
	waits.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "sriov"}
	got := list([]corev1.Pod{waits, pod("shop", "plain", "")}, nil)
	if len(got) != 1 || got[0].Pod != "web" || got[0].Network != "sriov" || got[0].Problem == "" {
		t.Errorf("%+v", got)
	}
}

// Multus does not record the device of a network without a resourceName, but the node does.
func TestNodeCompletesDevicesMissingInAPI(t *testing.T) {
	const status = `[{"name": "mem", "interface": "net1", "dns": {}}, {"name": "lan", "interface": "net2", "dns": {}}]`
	all := append(list([]corev1.Pod{pod("shop", "memif", status)}, nil), list([]corev1.Pod{pod("shop", "dpdk", dpdkStatus)}, nil)...)
	records := []cluster.Record{
		{Network: cluster.Network{Namespace: "shop", Pod: "memif", Interface: "net1", Device: view.Device{Type: "pci", Device: "0000:3b:00.2", PF: "0000:3b:00.0"}}, Why: "the file is gone"},
		{Network: cluster.Network{Namespace: "shop", Pod: "memif", Interface: "net2"}, Why: "corrupt"},
		{Network: cluster.Network{Namespace: "shop", Pod: "dpdk", Interface: "net1", Device: view.Device{Type: "pci", Device: "0000:ff:00.0"}}},
	}
	cluster.Fill(all, "n2", records) // a pod of the same name on another node
	cluster.Fill(all, "n1", records)
	var got []string
	for _, a := range all {
		if a.FromNode || a.Problem != "" {
			got = append(got, a.Pod+" "+a.Interface+" "+a.Type+" "+a.Device.Device+" of "+a.PF+": "+a.Problem)
		}
	}
	equal(t, "from the node", got, []string{"memif net1 pci 0000:3b:00.2 of 0000:3b:00.0: the file is gone", "memif net2   of : corrupt"})
}
