package dra_test

import (
	"sync/atomic"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/inventory"
)

// A VF more or less writes one of the pool's six slices.
func TestOnlyTheSliceThatDiffersIsWritten(t *testing.T) {
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	n.rules = `devices: [{select: 'device.attributes["devinfo-cni.io"].kind == "vf"', as: exclusive}]`
	var host atomic.Pointer[hosttxt.Host]
	host.Store(hosttxttest.ManyVFs(256))
	client := server(nil)
	kubeletOf(t, client, 0, func(o *dra.Options) {
		log := o.Log
		*o = r.options
		o.Exec, o.Log, o.Inventory = p, log, n.inventory()
		o.Inventory.Host = func() (inventory.Host, error) { return inventory.Captured(host.Load()) }
	})
	await := func(vfs int) {
		r.eventually("the VFs are published", func() bool {
			list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
			must(t, err)
			devices := 0
			for _, s := range list.Items {
				devices += len(s.Spec.Devices)
			}
			return len(list.Items) == 6 && devices == vfs+1 // cni
		})
	}
	await(256)
	client.ClearActions()
	for _, step := range []struct {
		change func()
		vfs    int
	}{
		{func() { n.others = map[string]string{hosttxttest.VF(100): "pod ns/x has it"} }, 255},
		{func() { n.others = nil }, 256},
		{func() { host.Store(hosttxttest.ManyVFs(257)) }, 257},
	} {
		n.change(step.change)
		await(step.vfs)
	}
	written := map[string]bool{} // the library may write one twice before it hears of the first time
	for _, a := range client.Actions() {
		switch a := a.(type) {
		case clienttesting.UpdateActionImpl:
			written[a.GetObject().(*resourceapi.ResourceSlice).Name] = true
		case clienttesting.CreateActionImpl, clienttesting.DeleteActionImpl:
			t.Errorf("%s of a slice", a.GetVerb())
		}
	}
	if len(written) != 2 { // of VF 100, and of VF 256
		t.Errorf("written: %v", written)
	}
}
