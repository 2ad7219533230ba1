// Package undertest builds the programs that tests run, and unpacks a /sys for them. With -short, tests do not run
// programs.
package undertest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/test/difftest"
)

// Key is the environment variable with the path of the plugin's executable.
const Key = "DEVINFO_UNDER_TEST"

// Build builds the plugin into a directory and sets Key, unless Key is set. It is for TestMain. With -short it does
// nothing.
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

// Main creates a temporary directory, calls Build and then run, both with that directory, and returns run's exit
// code.
func Main(run func(dir string) int) int {
	return within(func(dir string) int {
		if err := Build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return run(dir)
	})
}

const prefix = "devinfo-undertest-"

// within calls run with a temporary directory, which its process locks. It removes those that killed processes have left.
func within(run func(dir string) int) int {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // the pattern is valid
	for _, dir := range left {
		if lock, err := locked(dir, unix.LOCK_EX|unix.LOCK_NB); err == nil {
			_ = os.RemoveAll(dir) // may be another user's
			lock.Close()
		}
	}
	dir, err := os.MkdirTemp("", prefix)
	var lock *os.File
	if err == nil {
		lock, err = locked(dir, unix.LOCK_SH)
	}
	if err == nil {
		_, err = os.Stat(dir)
	}
	if errors.Is(err, fs.ErrNotExist) { // another process has removed it before the lock
		lock.Close()
		return within(run)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer lock.Close()
	defer os.RemoveAll(dir)
	return run(dir)
}

func locked(dir string, how int) (*os.File, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(file.Fd()), how); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// once is the directory of [Once].
var once string

// Temp is the TestMain of packages that use [Once].
func Temp(m *testing.M) {
	os.Exit(within(func(dir string) int { once = dir; return m.Run() }))
}

// Once is like [Programs], but builds the programs of a version only once for all tests of the package. The
// package's TestMain must call [Temp].
func Once(t testing.TB, version string, packages ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(once, version)
	if _, err := os.Stat(dir); err != nil {
		Programs(t, dir+"/", version, packages...)
	}
	return dir
}

// Peers returns the directory of the reference plugins. It fails the test if one of these plugins is missing.
func Peers(t testing.TB, names ...string) string {
	t.Helper()
	dir, err := filepath.Abs(cmp.Or(os.Getenv("DEVINFO_BIN"), "../../bin"))
	difftest.Must(t, err)
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatalf("%v: run `make deps-peers`, or set DEVINFO_BIN", err)
		}
	}
	return dir
}

// Sys unpacks the /sys of a captured host into dir.
func Sys(t testing.TB, host, dir string) {
	t.Helper()
	h, err := capturefile.Load("../../testdata/hosts/" + host + ".txtar")
	difftest.Must(t, err)
	difftest.Must(t, Unpack(h, dir))
}

// Unpack writes a captured host's /sys to dir. It leaves out attributes with read errors, because no file can return
// these errors, and a missing file has the same meaning.
func Unpack(host *capturefile.Host, dir string) error {
	if err := host.Unpack(dir); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "phys_") {
			if err := os.Remove(name); err != nil {
				return err
			}
			return fs.SkipDir
		}
		return err
	})
}

// Programs builds programs with a version ("" = none). If to ends in a slash it is a directory, otherwise the file of
// the only program. With -short it skips the test.
func Programs(t testing.TB, to, version string, packages ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it builds a program")
	}
	difftest.Must(t, build(to, version, packages...))
}

func build(to, version string, packages ...string) error {
	args := []string{"build", "-buildvcs=false", "-o", to}
	if version != "" {
		args = append(args, "-ldflags", "-s -w -X devinfo-cni.io/pkg/core/build.version="+version)
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %q: %w\n%s", packages, err, out)
	}
	return nil
}
