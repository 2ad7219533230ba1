// Package scheduler_test has Kubernetes' own allocator, which the scheduler runs, choose from
// what package inventory publishes. It is a module of its own for what the allocator imports.
package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/inventory"
)

const driver = "cni.dra.networking.x-k8s.io"

// offered is what a node with counters publishes of a captured host.
func offered(t *testing.T, name, configuration string) []inventory.Slice {
	t.Helper()
	file, err := hosttxt.Load("../../testdata/hosts/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	host, err := inventory.Captured(file)
	if err != nil {
		t.Fatal(err)
	}
	devices, _, err := inventory.Read(host)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := inventory.ParseRules([]byte(configuration))
	if err != nil {
		t.Fatal(err)
	}
	s := inventory.Situation{Driver: driver, Sharing: true, Counters: true}
	return inventory.Slices(inventory.Decide(devices, rules, s), nil, nil)
}

// allocates asks the allocator for one device, by its PCI address, while another is
// allocated; "" = none is.
func allocates(t *testing.T, list []inventory.Slice, has, wants string) bool {
	t.Helper()
	node := "node"
	var published []*resourceapi.ResourceSlice
	for n, s := range list {
		published = append(published, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(n)}, Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Devices: s.Devices, SharedCounters: s.SharedCounters,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(len(list))},
		}})
	}
	state := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	if has != "" {
		state.AllocatedDevices.Insert(structured.MakeDeviceID(driver, node, named(has)))
	}
	allocator, err := structured.NewAllocator(t.Context(), structured.Features{PartitionableDevices: true, ConsumableCapacity: true},
		state, classes{}, published, cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		t.Fatal(err)
	}
	results, err := allocator.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []*resourceapi.ResourceClaim{claim(wants)})
	if err != nil {
		t.Fatal(err)
	}
	return len(results) == 1
}

func named(address string) string {
	return "pci-" + strings.NewReplacer(":", "-", ".", "-").Replace(address)
}

func claim(address string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "u"}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "c", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf(`device.attributes["resource.kubernetes.io"].?pciBusID.orValue("") == %q`, address),
		}}},
	}}}
	return c
}

// classes has one class, of all devices.
type classes struct{}

func (classes) Get(string) (*resourceapi.DeviceClass, error) { return &resourceapi.DeviceClass{}, nil }

func (classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

const (
	pf, vf, otherVF = "0000:01:00.0", "0000:01:10.0", "0000:01:10.2"
	farPF, farVF    = "0000:41:00.0", "0000:41:10.0"
)

// Either a PF or VFs on it are given away, and other PFs are left alone; without counters
// no PF with VFs is.
func TestEitherThePFIsGivenAwayOrWhatIsOnIt(t *testing.T) {
	list := offered(t, "igb-sriov", "devices:\n- select: device.attributes['devinfo-cni.io'].kind in ['pf', 'vf']\n  as: exclusive\n")
	for _, test := range []struct {
		has, wants string
		gets       bool
	}{
		{"", pf, true}, {"", vf, true}, {pf, vf, false}, {vf, pf, false}, {vf, otherVF, true},
		{vf, farPF, true}, {pf, farPF, true}, {pf, farVF, true}, {farPF, farVF, false},
	} {
		if got := allocates(t, list, test.has, test.wants); got != test.gets {
			t.Errorf("%q is allocated: %s is, too: %v", test.has, test.wants, got)
		}
	}
}
