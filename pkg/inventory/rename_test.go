package inventory_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// twoPorts is the host i40e with one more port of its first function: eno2, of the second.
func twoPorts(t *testing.T) []byte {
	t.Helper()
	text := captured(t, "i40e")
	for _, edit := range [][2]string{
		{"0000:18:00.1/net/eno2/dev_port --\n0", "0000:18:00.0/net/eno2/dev_port --\n1"}, {"0000:18:00.1/net/eno2", "0000:18:00.0/net/eno2"},
		{"net/eno2/device -> ../../../0000:18:00.1", "net/eno2/device -> ../../../0000:18:00.0"},
	} {
		changed := bytes.ReplaceAll(text, []byte(edit[0]), []byte(edit[1]))
		if bytes.Equal(text, changed) {
			t.Fatalf("the host has no %s", edit[0])
		}
		text = changed
	}
	return text
}

// The kernel gives an interface back by the name that it had in the pod.
func TestAnInterfaceThatComesBackUnderAnotherNameIsTheSameDevice(t *testing.T) {
	for where, text := range map[string][]byte{"netdevsim-switchdev": captured(t, "netdevsim-switchdev"), "two ports": twoPorts(t)} {
		before := interfaces(t, text)
		for _, name := range slices.Sorted(maps.Keys(before)) {
			after := interfaces(t, bytes.ReplaceAll(text, []byte(before[name]), []byte("z"+before[name])))
			if diff := cmp.Diff("z"+before[name], after[name]); diff != "" {
				t.Errorf("%s: %s: %s", where, name, diff)
			}
			// While it is in the pod, its neighbour does not take its place.
			gone := interfaces(t, without(t, text, before[name]))
			for other, ifName := range before {
				if other != name && gone[other] != ifName {
					t.Errorf("%s: without %s: %s is %q, was %q", where, before[name], other, gone[other], ifName)
				}
			}
		}
	}
}

// interfaces are those of a host's devices, by their names.
func interfaces(t *testing.T, text []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, d := range read(t, host(t, text)) {
		if d.IfName != "" {
			all[d.Name] = d.IfName
		}
	}
	return all
}
