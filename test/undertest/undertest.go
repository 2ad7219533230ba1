// Package undertest builds the programs that tests run. With -short no test runs one.
package undertest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Key is the environment variable that names the plugin's executable.
const Key = "DEVINFO_UNDER_TEST"

// Build builds the plugin into a directory and sets Key, unless the environment has one. It is
// for TestMain, and does nothing with -short.
func Build(dir string) error {
	if flag.Parse(); os.Getenv(Key) != "" || testing.Short() {
		return nil
	}
	binary := filepath.Join(dir, "devinfo")
	if err := build(binary, "", "devinfo-cni.io/cmd/devinfo"); err != nil {
		return err
	}
	return os.Setenv(Key, binary)
}

// Programs builds programs of a version, "" = none: one as the file to, or several below it if it
// ends in a slash. With -short the test is skipped.
func Programs(t testing.TB, to, version string, packages ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it builds a program")
	}
	if err := build(to, version, packages...); err != nil {
		t.Fatal(err)
	}
}

func build(to, version string, packages ...string) error {
	args := []string{"build", "-buildvcs=false", "-o", to}
	if version != "" {
		args = append(args, "-ldflags", "-s -w -X devinfo-cni.io/pkg/build.version="+version)
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %q: %w\n%s", packages, err, out)
	}
	return nil
}
