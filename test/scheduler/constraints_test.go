package scheduler_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// gpus are of another driver, one below each root complex of the host igb-sriov.
func gpus() *resourceapi.ResourceSlice {
	node := "node"
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for name, root := range map[string]string{"near": "pci0000:00", "far": "pci0000:40"} {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"model": {StringValue: &name}, "resource.kubernetes.io/pcieRoot": {StringValue: &root},
		}})
	}
	return slice
}

// A claim has a VF below the same root complex as its GPU, and VFs of two PFs, if it says so.
func TestConstraintsOnOurAttributes(t *testing.T) {
	published := append(resourceSlices(offered(t, "igb-sriov", "devices:\n- select: device.attributes['devinfo-cni.io'].kind == 'vf'\n  as: exclusive\n"), "node"), gpus())
	const ourVF = "device.driver == '" + driver + "'"
	root, pf := resourceapi.FullyQualifiedName("resource.kubernetes.io/pcieRoot"), resourceapi.FullyQualifiedName("devinfo-cni.io/pfPCIBusID")
	for _, test := range []struct {
		first      string // request
		constraint resourceapi.DeviceConstraint
		want       string
	}{
		{"device.attributes['gpu.example.com'].?model.orValue('') == 'near'", resourceapi.DeviceConstraint{MatchAttribute: &root}, "near " + named(vf)},
		{"device.attributes['gpu.example.com'].?model.orValue('') == 'far'", resourceapi.DeviceConstraint{MatchAttribute: &root}, "far " + named(farVF)},
		{ourVF, resourceapi.DeviceConstraint{DistinctAttribute: &pf}, named(vf) + " " + named(farVF)},
	} {
		c := claim(test.first)
		second := claim(ourVF).Spec.Devices.Requests[0]
		second.Name = "second"
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, second)
		c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{test.constraint}
		results, err := allocator(t, allocated(), "true", published, cel.NewCache(10, cel.Features{})).
			Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, []*resourceapi.ResourceClaim{c})
		must(t, err)
		var got []string
		for _, r := range results {
			for _, d := range r.Devices.Results {
				got = append(got, d.Device)
			}
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s: the claim has %s, want %s", test.first, got, test.want)
		}
	}
}
