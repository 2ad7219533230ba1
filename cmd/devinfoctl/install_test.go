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

// fakePlugin writes a shell script with this body, and returns its path.
func fakePlugin(t *testing.T, dir, body string) string {
	t.Helper()
	name := filepath.Join(dir, "devinfo")
	must(t, os.WriteFile(name, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return name
}

const speaks = `echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}'`

func TestInstallPrintsItsResult(t *testing.T) {
	bin, from := t.TempDir(), fakePlugin(t, t.TempDir(), speaks)
	for _, state := range []string{"installed", "already there"} {
		o := ctl("install", "--cni-bin-dir", bin, "--from", from)
		if o.exit != 0 || o.stderr != "" || !strings.HasPrefix(o.stdout, bin+"/devinfo: "+state+"\n") || !strings.Contains(o.stdout, "\n  new  ") {
			t.Errorf("%+v", o)
		}
	}
	if o := ctl("install", "--cni-bin-dir", bin, "--from", from, "-o", "json"); !strings.Contains(o.stdout, `"state": "already there"`) {
		t.Errorf("%+v", o)
	}
}

func TestInstallRefusesWithARemedy(t *testing.T) {
	bin, good := t.TempDir(), fakePlugin(t, t.TempDir(), speaks)
	taken := t.TempDir()
	must(t, os.Mkdir(filepath.Join(taken, "devinfo"), 0o755))
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
		o := ctl(append([]string{"install"}, c.args...)...)
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
	plugin := filepath.Join(t.TempDir(), "devinfo")
	undertest.Programs(t, plugin, "", "../devinfo")
	bin, settings := t.TempDir(), filepath.Join(t.TempDir(), "node.json")
	for stateDir, exit := range map[string]int{"/proc/none/state": clierr.Blind, filepath.Join(t.TempDir(), "state"): 0} {
		must(t, os.WriteFile(settings, fmt.Appendf(nil, `{"stateDir": %q}`, stateDir), 0o600))
		o := ctl("--node-config", settings, "install", "--cni-bin-dir", bin, "--from", plugin)
		if o.exit != exit || exit != 0 && !strings.Contains(o.stderr, "stateDir: "+stateDir+" does not exist and cannot be created") || strings.Contains(o.stderr, bin) {
			t.Errorf("%+v", o)
		}
		must(t, os.RemoveAll(filepath.Join(bin, "devinfo")))
	}
}

// For root, the error already names the cause, and "run as root" would mislead.
func TestRootGetsNoRemedyToRunAsRoot(t *testing.T) {
	err := installError(&fs.PathError{Op: "open", Path: "/bin/.devinfo", Err: fs.ErrPermission}, "/bin", "/from")
	if found := new(clierr.Error); errors.As(err, &found) == (os.Geteuid() == 0) {
		t.Errorf("%#v", err)
	}
}
