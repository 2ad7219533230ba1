// Package kernel_test runs the devinfo binary, as a runtime does, on the kernel
// of this machine: in real network namespaces, with the reference plugins of bin/
// as its children or before it, killed, interrupted, starved of disk and lied to.
//
// Each test has namespaces and an empty /run of its own (package linktest), as
// root and as an ordinary user. Only /sys is, where a test needs a device that
// this machine does not have, a captured one.
package kernel_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// underTest names the devinfo binary. TestMain builds it, unless the environment
// has it already: linktest starts the test binary again for each test.
const underTest = "DEVINFO_UNDER_TEST"

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
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv(underTest) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "devinfo-kernel-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "devinfo")
	build := exec.Command("go", "build", "-o", binary, "devinfo-cni.io/cmd/devinfo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build devinfo: %v\n%s", err, out)
		return 1
	}
	os.Setenv(underTest, binary)
	return m.Run()
}
