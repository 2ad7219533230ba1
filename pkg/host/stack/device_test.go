package stack_test

import (
	"testing"

	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/pkg/host/stack"
	"devinfo-cni.io/test/difftest"
)

// No kernel of the tests has hardware in another network namespace.
func TestDeviceIsThatOfItsOwnInterface(t *testing.T) {
	for want, list := range map[string][]rtnetlink.Link{
		"0000:01:00.2": {{Parent: "0000:01:00.2"}, {Parent: "0000:01:00.2", Kind: "ipoib"}, {Name: "before Linux 5.14"}},
		"":             {{Parent: "0000:01:00.2", Kind: "ipoib", Lower: 3}, {Parent: "0000:01:00.2", PortName: "pf0vf1"}, {Kind: "tun"}, {Name: "lo"}},
	} {
		for _, l := range list {
			difftest.Same(t, l.Kind, stack.Device(l, func(name string) string {
				return map[string]string{"before Linux 5.14": "0000:01:00.2", "": "tap"}[name]
			}), want)
		}
	}
}
