// Package scheduler_test runs the allocator of Kubernetes' scheduler on the devices that package inventory publishes.
// It is a separate module because of the allocator's dependencies.
package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile"
)

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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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

func allocator(t *testing.T, state structured.AllocatedState, class classOf, published []*resourceapi.ResourceSlice, cache *cel.Cache) structured.Allocator {
	t.Helper()
	a, err := structured.NewAllocator(t.Context(), structured.Features{ConsumableCapacity: true}, state, class, published, cache)
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
