// Package kernel_test runs the devinfo binary, as a runtime does, on the kernel
// of this machine: in real network namespaces, with the reference plugins of bin/
// as its children or before it, killed, interrupted, starved of disk and lied to.
//
// Each test has namespaces and an empty /run of its own (package linktest), as
// root and as an ordinary user. Where a test needs a device that this machine
// does not have, /sys is a captured one.
package kernel_test

import (
	"os"
	"path/filepath"
	"testing"

	"devinfo-cni.io/test/undertest"
)

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "child":
		playChild()
		return
	case "attacker":
		playAttacker()
		return
	case "confined":
		playConfined()
		return
	}
	os.Exit(undertest.Main(func(string) int { return m.Run() }))
}
