// Package undertest builds the programs that tests run, and unpacks a /sys for them. With -short, tests do not run
// programs.
package undertest

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/test/difftest"
)

const (
	key    = "DEVINFO_UNDER_TEST"     // environment variable with the path of the plugin's executable; unset = build it
	dirKey = "DEVINFO_UNDER_TEST_DIR" // the same with the directory of Once
)

// Plugin returns the path of the plugin's executable: DEVINFO_UNDER_TEST, or a build of this repository. A test that runs itself again in
// namespaces must call it before, like [Once].
func Plugin(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(key); path != "" {
		return path
	}
	return Once(t, "", "devinfo-cni.io/cmd/devinfo") + "/devinfo"
}

const prefix = "devinfo-undertest-"

// Temp is the TestMain of packages that use [Once]. Processes that the tests start have the same directory. It removes the
// directories of killed runs, which are older than any run may become.
func Temp(m *testing.M) {
	if os.Getenv(dirKey) != "" {
		os.Exit(m.Run())
	}
	removeLeft(time.Now().Add(-12 * time.Hour))
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv(dirKey, dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// removeLeft removes the directories of runs that began before a time.
func removeLeft(before time.Time) {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // the pattern is valid
	for _, dir := range left {
		if info, err := os.Stat(dir); err == nil && info.ModTime().Before(before) {
			_ = os.RemoveAll(dir) // may be another user's
		}
	}
}

var building sync.Mutex

// Once is like [Programs], but builds programs only once for all tests of the package, and returns their directory. The
// package's TestMain must call [Temp].
func Once(t testing.TB, version string, packages ...string) (dir string) {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	dir = filepath.Join(os.Getenv(dirKey), url.PathEscape(fmt.Sprint(version, packages)))
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
	difftest.Must(t, Unpack(capturetest.Load(t, host), dir))
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
	args := []string{"build", "-buildvcs=false", "-o", to}
	if version != "" {
		args = append(args, "-ldflags", "-s -w -X devinfo-cni.io/pkg/core/build.version="+version)
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %q: %v\n%s", packages, err, out)
	}
}
