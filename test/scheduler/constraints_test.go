// Package scheduler_test runs the allocator of Kubernetes' scheduler on the devices that package inventory publishes.
package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/test/difftest"
)

// gpus returns devices of another driver, one below each root complex of the host igb-sriov. The one named far is on NUMA
// node 1, like the functions below its root complex, and near is on a node that has the same socket.
func gpus() *resourceapi.ResourceSlice {
	node := "node"
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for name, root := range map[string]string{"near": "pci0000:00", "far": "pci0000:40"} {
		node := map[string]int64{"near": 2, "far": 1}[name]
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"model": {StringValue: &name}, "resource.kubernetes.io/pcieRoot": {StringValue: &root}, inventory.NUMANode: {IntValue: &node},
		}})
	}
	return slice
}

// given returns the devices that a claim gets on a node; "" = it cannot be allocated.
func given(t *testing.T, published []*resourceapi.ResourceSlice, node string, c *resourceapi.ResourceClaim) string {
	t.Helper()
	var names []string
	for _, r := range allocate(t, classes{"c": {}}, published, node, c, true) {
		for _, d := range r.Devices.Results {
			names = append(names, d.Device)
		}
	}
	return strings.Join(names, " ")
}

// withNUMALists returns slices with the lists of --numa-node=list: nodes 1 and 2 are the nearest on their socket.
func withNUMALists(list []*resourceapi.ResourceSlice) (changed []*resourceapi.ResourceSlice) {
	for _, s := range list {
		s = s.DeepCopy()
		for _, d := range s.Spec.Devices {
			if node := d.Attributes[inventory.NUMANode].IntValue; node != nil && s.Spec.Driver == driver {
				d.Attributes[inventory.NUMANode] = resourceapi.DeviceAttribute{IntValues: []int64{*node, 3 - *node}}
			}
		}
		changed = append(changed, s)
	}
	return changed
}

// A constraint can require a VF below the same root complex or on the same NUMA node as the GPU, or VFs of two PFs. The
// list of NUMA nodes also allows a GPU on another node of the socket, whose driver publishes a number.
func TestConstraintsCanUseOurAttributes(t *testing.T) {
	published := append(resourceSlices(offered(t, "igb-sriov", "devices:\n- select: device.attributes['devinfo-cni.io'].kind == 'vf'\n  sharing: exclusive\n"), "node"), gpus())
	gpu := func(model string) string {
		return "device.attributes['gpu.example.com'].?model.orValue('') == '" + model + "'"
	}
	const ourVF = "device.driver == '" + driver + "'"
	lists, numa := withNUMALists(published), resourceapi.FullyQualifiedName(inventory.NUMANode)
	root, pf := resourceapi.FullyQualifiedName("resource.kubernetes.io/pcieRoot"), resourceapi.FullyQualifiedName("devinfo-cni.io/pfPCIBusID")
	for _, test := range []struct {
		published  []*resourceapi.ResourceSlice
		first      string // first request
		constraint resourceapi.DeviceConstraint
		want       string
	}{
		{published, gpu("near"), resourceapi.DeviceConstraint{MatchAttribute: &root}, "near " + named(vf)},
		{published, gpu("far"), resourceapi.DeviceConstraint{MatchAttribute: &root}, "far " + named(farVF)},
		{published, gpu("far"), resourceapi.DeviceConstraint{MatchAttribute: &numa}, "far " + named(farVF)},
		{published, gpu("near"), resourceapi.DeviceConstraint{MatchAttribute: &numa}, ""},
		{lists, gpu("far"), resourceapi.DeviceConstraint{MatchAttribute: &numa}, "far " + named(farVF)},
		{lists, gpu("near"), resourceapi.DeviceConstraint{MatchAttribute: &numa}, "near " + named(farVF)},
		{published, ourVF, resourceapi.DeviceConstraint{DistinctAttribute: &pf}, named(vf) + " " + named(farVF)},
	} {
		c := claim(test.first)
		second := claim(ourVF).Spec.Devices.Requests[0]
		second.Name = "second"
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, second)
		c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{test.constraint}
		difftest.Same(t, test.first, given(t, test.published, "node", c), test.want)
	}
}

// The claim can only be allocated on the node whose rules give the network to its VFs.
func TestClaimGetsNodeWithItsNetwork(t *testing.T) {
	var published []*resourceapi.ResourceSlice
	hosts := map[string]string{"blue": "igb-sriov", "green": "mlx5-legacy"}
	for network, host := range hosts {
		rules := "devices:\n- select: device.attributes['devinfo-cni.io'].kind == 'vf'\n  sharing: exclusive\n  attributes: {physicalNetwork: " + network + "}\n"
		published = append(published, resourceSlices(offered(t, host, rules), network)...)
	}
	for network := range hosts {
		for node := range hosts {
			c := claim("device.attributes['devinfo-cni.io'].?physicalNetwork.orValue('') == '" + network + "'")
			if got := given(t, published, node, c); (got != "") != (network == node) {
				t.Errorf("on node %s a VF of network %s: %q", node, network, got)
			}
		}
	}
}

// The requests for a shared card's bandwidth cannot exceed its total.
func TestBandwidthIsNotExceeded(t *testing.T) {
	published := resourceSlices(offered(t, "igb-sriov", "devices:\n- ifNames: [eth0]\n  sharing: shared\n  bandwidth: 10G\n"), "node")
	for size, gets := range map[string]bool{"5G": true, "6G": false} {
		c := claim("true")
		one := &c.Spec.Devices.Requests[0]
		one.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"bandwidth": resource.MustParse(size)}}
		two := one.DeepCopy()
		two.Name = "second"
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, *two)
		if got := given(t, published, "node", c); (got != "") != gets {
			t.Errorf("%s twice of 10G: %q", size, got)
		}
	}
}

const driver = "cni.dra.networking.x-k8s.io"

// offered returns the slices that a node publishes for a captured host.
func offered(t *testing.T, name, configuration string) []inventory.Slice {
	t.Helper()
	host, err := inventory.Captured(capturetest.Load(t, name))
	must(t, err)
	devices, _, err := inventory.Read(host)
	must(t, err)
	rules, err := inventory.ParseRules([]byte(configuration))
	must(t, err)
	return inventory.Slices(inventory.Pool(inventory.Decide(devices, rules, inventory.DecideInput{Driver: driver, Sharing: true}), nil))
}

var must = difftest.Must

// resourceSlices returns a node's pool. The names are in order, as package resourceslice generates them.
func resourceSlices(list []inventory.Slice, node string) (published []*resourceapi.ResourceSlice) {
	for n, s := range list {
		published = append(published, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%02x-%s", n, node)}, Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Devices: s.Devices,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(len(list))},
		}})
	}
	return published
}

// allocate allocates a claim on a node as a scheduler does, with or without the feature gate DRAListTypeAttributes.
func allocate(t *testing.T, known structured.DeviceClassLister, published []*resourceapi.ResourceSlice, node string, c *resourceapi.ResourceClaim, lists bool) []resourceapi.AllocationResult {
	t.Helper()
	state := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	features := structured.Features{PrioritizedList: true, ConsumableCapacity: true, ListTypeAttributes: lists}
	a, err := structured.NewAllocator(t.Context(), features, state, known, published, cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
	must(t, err)
	results, err := a.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []*resourceapi.ResourceClaim{c})
	must(t, err)
	return results
}

func named(address string) string {
	return "pci-" + strings.NewReplacer(":", "-", ".", "-").Replace(address)
}

// claim returns a claim for one device that matches a CEL expression.
func claim(expression string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "u"}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "c", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1, Selectors: selectors(expression),
	}}}
	return c
}

func selectors(expression string) []resourceapi.DeviceSelector {
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
}

const vf, farVF = "0000:01:10.0", "0000:41:10.0" // VFs of two PFs
