package dra_test

import (
	"errors"
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/test/difftest"
)

// A list begins with the node of the device. A device that a claim holds follows the option too, and so does its
// metadata. Rules always compare a number.
func TestNUMANodeIsListIfSelected(t *testing.T) {
	const name, numaNode = "pci-0000-41-10-0", deviceattribute.StandardDeviceAttributeNUMANode
	r, claim := newRig(t), ownClaim("u1", name, `"device":[],`+network(`{"type":"sriov"}`))
	n := newNode(t, "igb-sriov")
	n.text = append(n.text, "-- sys/devices/system/node/node1/distance --\n20 10 12 12 32\n"...)
	n.rules = "devices: [{sharing: exclusive, pciAddresses: ['0000:41:10.0'], select: \"device.attributes['resource.kubernetes.io'].numaNode == 1\"}]"
	for _, test := range []struct {
		form deviceattribute.AttributeForm
		want resourceapi.DeviceAttribute
	}{
		{deviceattribute.ListAttribute, resourceapi.DeviceAttribute{IntValues: []int64{1, 2, 3}}},
		{deviceattribute.ScalarAttribute, resourceapi.DeviceAttribute{IntValue: new(int64(1))}},
		{deviceattribute.ListAttribute, resourceapi.DeviceAttribute{IntValues: []int64{1, 2, 3}}},
	} {
		r.options.Devices.NUMANode = test.form
		client := apiServer(nil, claim)
		r.startOffering(client, n, newPlugins())
		difftest.Equal(t, waitDevices(t, client, "cni", name)[name].Attributes[numaNode], test.want)
		r.prepareByKubelet(claim)
		difftest.Equal(t, r.readMetadata(claim).Requests[0].Devices[0].Attributes[numaNode], test.want)
	}
}

// test/apiserver checks that a real API server returns this error.
func TestRefusedNUMAListIsFatal(t *testing.T) {
	slice := schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceSlice"}
	refused := func(attribute string) error {
		path := field.NewPath("spec", "devices").Index(0).Child("attributes").Key(attribute)
		return fmt.Errorf("create: %w", errors.Join(kubeletplugin.ErrRecoverable, apierrors.NewInvalid(slice, "s", field.ErrorList{field.Required(path, "exactly one value must be specified")})))
	}
	r := newRig(t)
	var fatal []error
	k := dra.Unstarted(r.start(), dra.KubeletOptions{Fatal: func(err error) { fatal = append(fatal, err) }})
	k.HandleError(t.Context(), refused("devinfo-cni.io/mtu"), "publish")
	difftest.Equal(t, len(fatal), 0)
	k.HandleError(t.Context(), refused("resource.kubernetes.io/numaNode"), "publish")
	difftest.Equal(t, len(fatal), 1)
	says(t, fatal[0], "publish: create: ", "DRAListTypeAttributes", "--numa-node=scalar")
}
