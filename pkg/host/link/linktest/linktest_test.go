package linktest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/link/linktest"
)

// The child of a nested call would run the call around it, which would start the next child, and so on.
func TestRunCannotBeNested(t *testing.T) {
	const key = "LINKTEST_NESTED"
	if os.Getenv(key) != "" {
		linktest.Run(t, func(t *testing.T) {
			t.Run("a/b", func(t *testing.T) { linktest.Run(t, func(*testing.T) {}) })
		})
		return
	}
	if testing.Short() {
		t.Skip("-short: the test needs its own namespaces")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.timeout=1m", "-test.v")
	cmd.Env = append(os.Environ(), key+"=1")
	switch out, err := cmd.CombinedOutput(); {
	case err == nil && strings.Contains(string(out), "--- SKIP: "):
		t.Skip("no namespaces")
	case err == nil || !strings.Contains(string(out), "Run cannot be nested"):
		t.Errorf("%v\n%s", err, out)
	}
}

// Names of subtests may contain what has a meaning in patterns.
func TestRunFindsTheTestByAnyName(t *testing.T) {
	for _, name := range []string{"a/b", "a|b", "(a", "[a", `a\b`, "a b", "ä", "#01", "a/", "\x01", ""} {
		t.Run(name, func(t *testing.T) {
			linktest.Run(t, func(t *testing.T) { t.Log(name) })
		})
	}
}
