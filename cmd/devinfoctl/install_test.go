package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

// newPlugin builds devinfo, and returns its path and node settings with a journal of the test's own.
func newPlugin(t *testing.T) (plugin, settings string) {
	t.Helper()
	plugin, settings = filepath.Join(t.TempDir(), "devinfo"), filepath.Join(t.TempDir(), "node.json")
	undertest.Programs(t, plugin, "", "../devinfo")
	difftest.Must(t, os.WriteFile(settings, fmt.Appendf(nil, `{"stateDir": %q}`, filepath.Join(t.TempDir(), "state")), 0o600))
	return plugin, settings
}

func TestInstallPrintsItsResult(t *testing.T) {
	from, settings := newPlugin(t)
	bin := t.TempDir()
	for _, state := range []string{"installed", "already there", "replaced"} {
		if state == "replaced" { // one with other bytes
			difftest.Write(t, bin+"/devinfo", difftest.Read(t, from)+"\x00", 0o755)
		}
		o := ctl("--node-config", settings, "install", "--cni-bin-dir", bin, "--from", from)
		if o.exit != 0 || o.stderr != "" || !strings.HasPrefix(o.stdout, bin+"/devinfo: "+state+"\n") || !strings.Contains(o.stdout, "\n  new  ") || strings.Contains(o.stdout, "\n  old  ") != (state == "replaced") {
			t.Errorf("%+v", o)
		}
	}
	difftest.Contains(t, ctl("--node-config", settings, "install", "--cni-bin-dir", bin, "--from", from, "-o", "json").stdout, `"state": "already there"`)
}

func TestInstallRefusesWithARemedy(t *testing.T) {
	good, settings := newPlugin(t)
	bin, taken := t.TempDir(), t.TempDir()
	difftest.Must(t, os.Mkdir(filepath.Join(taken, "devinfo"), 0o755))
	for _, c := range []struct {
		args []string
		exit int
		says []string
	}{
		{nil, clierr.Usage, []string{"--cni-bin-dir is missing", "/opt/cni/bin"}},
		{[]string{"--cni-bin-dir", taken, "--from", good}, clierr.Blind, []string{" is not a regular file (mode d", "move it away"}},
		{[]string{"--cni-bin-dir", bin, "--from", bin}, clierr.Blind, []string{bin + " is not a regular file"}},
		{[]string{"--cni-bin-dir", bin, "--from", bin + "/nothing"}, clierr.Blind, []string{"no such file", "--from"}},
		{[]string{"--cni-bin-dir", bin + "/nothing", "--from", good}, clierr.Blind, []string{"no such file", "--cni-bin-dir: ", "set it to the directory"}},
		{[]string{"--cni-bin-dir", "/proc", "--from", good}, clierr.Blind, []string{"/proc"}},
		{[]string{"--capture", hosts + "i40e.txtar", "--cni-bin-dir", bin}, clierr.Usage, []string{"capture cannot be changed", "leave --capture out"}},
	} {
		o := ctl(append([]string{"--node-config", settings, "install"}, c.args...)...)
		for _, says := range c.says {
			if o.exit != c.exit || o.stdout != "" || !strings.Contains(o.stderr, says) {
				t.Errorf("%q: %+v; want exit %d and %q", c.args, o, c.exit, says)
			}
		}
	}
	difftest.Holds(t, bin)
}

// cni-dra-driver's container may not mount the state directory that the node settings name. Its journal would look
// empty there, so that install would accept every plugin.
func TestInstallFailsIfStateDirIsMissing(t *testing.T) {
	plugin, settings := newPlugin(t)
	bin := t.TempDir()
	for stateDir, exit := range map[string]int{"/proc/none/state": clierr.Blind, filepath.Join(t.TempDir(), "state"): 0} {
		difftest.Must(t, os.WriteFile(settings, fmt.Appendf(nil, `{"stateDir": %q}`, stateDir), 0o600))
		o := ctl("--node-config", settings, "install", "--cni-bin-dir", bin, "--from", plugin)
		if o.exit != exit || exit != 0 && !strings.Contains(o.stderr, "stateDir: "+stateDir+" does not exist and cannot be created") || strings.Contains(o.stderr, bin) {
			t.Errorf("%+v", o)
		}
		difftest.Must(t, os.RemoveAll(filepath.Join(bin, "devinfo")))
	}
}

// For root, the error already names the cause, and "run as root" would mislead.
func TestRootGetsNoRemedyToRunAsRoot(t *testing.T) {
	err := installError(&fs.PathError{Op: "open", Path: "/bin/.devinfo", Err: fs.ErrPermission}, "/bin", "/from")
	difftest.Same(t, "a remedy", errors.As(err, new(*clierr.Error)), os.Geteuid() != 0)
}
