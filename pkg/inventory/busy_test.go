package inventory_test

import (
	"testing"

	"devinfo-cni.io/pkg/inventory"
)

// vf0 is 0000:01:10.0 with interface eth2.
func TestABusyDeviceIsNotTakenFromItsDriver(t *testing.T) {
	plain := func() inventory.Host { return changed(t, []string{"eth1"}, nil) }
	away := plain()
	away.Links = nil // as if it were in a pod
	used := plain()
	used.Uses = map[string]string{"eth2": "has the address 10.1.2.3/24"}
	for name, test := range map[string]struct {
		host   inventory.Host
		device string
		why    string // "" = it is free
	}{
		"free":                 {plain(), vf0, ""},
		"on vfio-pci already":  {plain(), "pci-0000-01-10-6", ""},
		"uplink":               {changed(t, []string{"eth2"}, nil), vf0, "the host needs it: eth2 has a default route"},
		"PF with VFs":          {plain(), pf0, "it has 4 devices on it: they would lose their parent"},
		"port":                 {changed(t, nil, map[string]string{"eth2": "bond0"}), vf0, "eth2 is a port of bond0"},
		"VLAN":                 {changed(t, nil, nil, of("vlan", "eth2.7", "eth2")), vf0, "eth2.7 is on eth2"},
		"in another namespace": {away, vf0, "it has no interface here, as if it were in another network namespace"},
		"gone":                 {plain(), "pci-0000-09-00-0", "the node has lost it"},
		"address":              {used, vf0, "the host uses it: eth2 has the address 10.1.2.3/24"},
	} {
		t.Run(name, func(t *testing.T) {
			if why, err := inventory.Busy(test.host, test.device); err != nil || why != test.why {
				t.Errorf("got %q, %v", why, err)
			}
		})
	}
}
