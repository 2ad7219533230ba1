// Package undertest builds the plugin that tests run as a program.
package undertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Key is the environment variable that names the plugin's executable.
const Key = "DEVINFO_UNDER_TEST"

// Build builds the plugin into a directory and sets Key, unless the environment has one.
func Build(dir string) error {
	if os.Getenv(Key) != "" {
		return nil
	}
	binary := filepath.Join(dir, "devinfo")
	build := exec.Command("go", "build", "-o", binary, "devinfo-cni.io/cmd/devinfo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build devinfo: %w\n%s", err, out)
	}
	return os.Setenv(Key, binary)
}
