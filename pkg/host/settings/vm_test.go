//go:build vm

package settings_test

import (
	"testing"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/test/difftest"
)

// The netlink library's LinkByName does not request the VFs.
func TestVMVFSettingsOnPF(t *testing.T) {
	linktest.NeedsMachine(t, "igb")
	k := kernel()
	for _, vlan := range []int{5, 0} {
		difftest.Must(t, k.SetVF("enp65s0", 1, settings.VFVLAN, settings.VF{VLAN: vlan}))
		vf, ok, err := k.VF("enp65s0", 1)
		if err != nil || !ok || vf.Index != 1 || vf.VLAN != vlan || vf.PFName != "enp65s0" {
			t.Errorf("VLAN %d: got %+v, %v, %v", vlan, vf, ok, err)
		}
	}
	if vf, ok, err := k.VF("enp65s0", 7); ok || err != nil {
		t.Errorf("a missing VF: %+v, %v", vf, err)
	}
}
