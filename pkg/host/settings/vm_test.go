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
		if vf, err := k.VF("enp65s0", 1); err != nil || vf == nil || vf.VLAN != vlan {
			t.Errorf("VLAN %d: got %+v, %v", vlan, vf, err)
		}
	}
	if vf, err := k.VF("enp65s0", 7); vf != nil || err != nil {
		t.Errorf("a missing VF: %+v, %v", vf, err)
	}
}
