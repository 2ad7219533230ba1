// Package kernel_test runs the devinfo binary as a runtime does, in network namespaces of this machine's kernel. The
// reference plugins in bin/ are its delegates, or run before it. The tests kill and signal the plugin, fill its disk,
// and corrupt its files.
//
// Each test has its own namespaces and an empty /run (package linktest), as root and as an ordinary user. /sys is that of
// a captured host.
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
