//go:build vm

package vm_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// macs gives what the result has for MAC addresses: macvlan and bridge choose
// them at random.
func macs(t *testing.T, result string) (list []string) {
	t.Helper()
	var r struct{ Interfaces []struct{ Mac string } }
	if err := json.Unmarshal([]byte(result), &r); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	for _, i := range r.Interfaces {
		list = append(list, i.Mac)
	}
	return list
}

// The device of a macvlan is that of its lower interface.
func TestMacvlanOnAVF(t *testing.T) {
	needs(t, "igb")
	n := newNetwork(t, "macvlan", `[{"type": "macvlan", "master": "enp1s0v2"}, {"type": "tuning", "mac": "02:00:00:00:00:17"}, `+devinfoBlind+`]`)
	a := n.attachment("pod1", "net1", "")
	a.passes(`{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:17", "sandbox": "/run/netns/pod1", "pciID": "0000:01:10.4"}]}`, pciInfo("0000:01:10.4", "0000:01:00.0"))
}

// What no reference plugin makes, made by hand before devinfo.
func TestOtherUppersOfAVF(t *testing.T) {
	needs(t, "igb")
	for _, upper := range []string{"vlan id 7", "ipvlan mode l2", "macvtap mode bridge"} {
		t.Run(upper, func(t *testing.T) {
			n := newNetwork(t, "upper", `[{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true},
				"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/pod1"}]}}]`)
			a := n.attachment("pod1", "net1", "")
			// igbvf asks the PF for a VLAN, and says EINVAL if the answer takes too long.
			eventually(t, upper, func() bool {
				out, err := exec.Command("ip", strings.Fields("link add link enp1s0v2 name net1 netns pod1 type "+upper)...).CombinedOutput()
				if err != nil && !strings.Contains(string(out), "Invalid argument") {
					t.Fatalf("%v\n%s", err, out)
				}
				return err == nil
			})
			a.passes(standalone("/run/netns/pod1", "0000:01:10.4"), pciInfo("0000:01:10.4", "0000:01:00.0"))
		})
	}
}
