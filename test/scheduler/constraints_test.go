// Package scheduler_test runs the allocator of Kubernetes' scheduler on the devices that package inventory publishes.
// It is a separate module because of the allocator's dependencies.
package scheduler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
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
	results, err := allocator(t, allocated(), "true", published, cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}), true).
		Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []*resourceapi.ResourceClaim{c})
	must(t, err)
	var names []string
	for _, r := range results {
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

const (
	nodes = 50
	pfs   = 8
	vfs   = 128 // per PF
)

// manyPFs returns the slices of a node with eight PFs of 128 VFs each.
func manyPFs(t *testing.T) []inventory.Slice {
	t.Helper()
	host, err := inventory.Captured(capturetest.ManyVFs(pfs * vfs))
	must(t, err)
	devices, _, err := inventory.Read(host)
	must(t, err)
	for n := range devices { // distribute the VFs over eight PFs
		if d := &devices[n]; d.Kind == hostdev.VF {
			index := *d.Attributes[inventory.AttrVFIndex].IntValue
			number, name, address := index%vfs, pfName(int(index/vfs)), fmt.Sprintf("0000:%02x:00.0", 0x3b+index/vfs)
			d.Attributes[inventory.AttrVFIndex] = resourceapi.DeviceAttribute{IntValue: &number}
			d.Attributes[inventory.AttrPFName] = resourceapi.DeviceAttribute{StringValue: &name}
			d.Attributes[inventory.AttrPFPCIBusID] = resourceapi.DeviceAttribute{StringValue: &address}
		}
	}
	return slices(t, devices, "devices:\n- select: device.attributes['devinfo-cni.io'].kind == 'vf'\n  sharing: exclusive\n", inventory.DecideInput{Driver: driver})
}

func pfName(n int) string { return fmt.Sprintf("ens%df0np0", n) }

// A class whose devices belong to one PF may cost the scheduler at most three times as much as a class that all
// devices match. The test has 50 nodes, with all VFs free and with half of them allocated.
func TestClassOfOnePFCostsSchedulerLittle(t *testing.T) {
	list := manyPFs(t)
	var published []*resourceapi.ResourceSlice
	for n := range nodes {
		published = append(published, resourceSlices(list, fmt.Sprint("node", n))...)
	}
	cache := cel.NewCache(10, cel.Features{})
	cost := func(class string, given int64) time.Duration {
		state := allocated()
		for _, s := range published {
			for _, d := range s.Spec.Devices {
				if *d.Attributes[inventory.AttrVFIndex].IntValue < given {
					state.AllocatedDevices.Insert(deviceID(s.Spec.Pool.Name, d.Name))
				}
			}
		}
		best := time.Hour
		for range 5 {
			start := difftest.ProcessorTime(t)
			allocator := allocator(t, state, classOf(class), published, cache, false)
			for n := range nodes {
				results, err := allocator.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node", n)}}, []*resourceapi.ResourceClaim{claim("true")})
				if err != nil || len(results) != 1 {
					t.Fatalf("%s: %d results, %v", class, len(results), err)
				}
			}
			best = min(best, difftest.ProcessorTime(t)-start)
		}
		return best
	}
	for _, given := range []int64{0, vfs / 2} {
		all := cost(fmt.Sprintf("device.driver == %q", driver), given)
		for n := range pfs {
			one := cost(fmt.Sprintf("device.driver == %q && device.attributes['devinfo-cni.io'].pfName == %q", driver, pfName(n)), given)
			t.Logf("%d VFs of each PF are given away: %s: %v; any PF: %v", given, pfName(n), one, all)
			if one > 3*all {
				t.Errorf("%d VFs of each PF are given away: one of %s takes %v, one of any PF %v", given, pfName(n), one, all)
			}
		}
	}
}

const driver = "cni.dra.networking.x-k8s.io"

// offered returns the slices that a node publishes for a captured host.
func offered(t *testing.T, name, configuration string) []inventory.Slice {
	t.Helper()
	file, err := capturefile.Load("../../testdata/hosts/" + name + ".txtar")
	must(t, err)
	host, err := inventory.Captured(file)
	must(t, err)
	devices, _, err := inventory.Read(host)
	must(t, err)
	return slices(t, devices, configuration, inventory.DecideInput{Driver: driver, Sharing: true})
}

var must = difftest.Must

func slices(t *testing.T, devices []inventory.Device, configuration string, s inventory.DecideInput) []inventory.Slice {
	t.Helper()
	rules, err := inventory.ParseRules([]byte(configuration))
	must(t, err)
	return inventory.Slices(inventory.Decide(devices, rules, s), nil)
}

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

func allocated() structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
}

func deviceID(node, name string) structured.DeviceID {
	return structured.MakeDeviceID(driver, node, name)
}

// allocator returns the allocator of a scheduler with or without the feature gate DRAListTypeAttributes.
func allocator(t *testing.T, state structured.AllocatedState, class classOf, published []*resourceapi.ResourceSlice, cache *cel.Cache, lists bool) structured.Allocator {
	t.Helper()
	return allocatorOf(t, state, class, published, cache, lists)
}

func allocatorOf(t *testing.T, state structured.AllocatedState, class structured.DeviceClassLister, published []*resourceapi.ResourceSlice, cache *cel.Cache, lists bool) structured.Allocator {
	t.Helper()
	a, err := structured.NewAllocator(t.Context(), structured.Features{PrioritizedList: true, ConsumableCapacity: true, ListTypeAttributes: lists}, state, class, published, cache)
	must(t, err)
	return a
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

// classOf lists a single class, whose devices match this CEL expression.
type classOf string

func (expression classOf) Get(string) (*resourceapi.DeviceClass, error) {
	return &resourceapi.DeviceClass{Spec: resourceapi.DeviceClassSpec{Selectors: selectors(string(expression))}}, nil
}

func (classOf) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

const vf, farVF = "0000:01:10.0", "0000:41:10.0" // VFs of two PFs
