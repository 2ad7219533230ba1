package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"devinfo-cni.io/pkg/ctl/remedy"
	"devinfo-cni.io/pkg/install"
	"devinfo-cni.io/test/undertest"
)

// fakePlugin writes a program that answers VERSION, as a file of its own content.
func fakePlugin(t *testing.T, dir, body string) string {
	t.Helper()
	name := filepath.Join(dir, "devinfo")
	must(t, os.WriteFile(name, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return name
}

const speaks = `echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}'`

func installed(t *testing.T, dir, from string) install.Installation {
	t.Helper()
	o := ctl("install", "--cni-bin-dir", dir, "--from", from, "-o", "json")
	if o.exit != 0 || o.stderr != "" {
		t.Fatalf("%+v", o)
	}
	var done install.Installation
	must(t, json.Unmarshal([]byte(o.stdout), &done))
	return done
}

// described is what install should say of a file with the content.
func described(content []byte) install.Executable {
	return install.Executable{Size: int64(len(content)), SHA256: fmt.Sprintf("%x", sha256.Sum256(content)), CNIVersions: []string{"1.0.0", "1.1.0"}}
}

func TestInstallPutsReplacesAndLeavesAlone(t *testing.T) {
	bin := t.TempDir()
	first, second := fakePlugin(t, t.TempDir(), speaks), fakePlugin(t, t.TempDir(), "# newer\n"+speaks)
	one, two := described(read(t, first)), described(read(t, second))
	to := filepath.Join(bin, "devinfo")
	for _, step := range []struct {
		from string
		want install.Installation
	}{
		{first, install.Installation{Path: to, State: "installed", New: one}},
		{first, install.Installation{Path: to, State: "already there", Old: &one, New: one}},
		{second, install.Installation{Path: to, State: "replaced", Old: &one, New: two}},
	} {
		if diff := cmp.Diff(step.want, installed(t, bin, step.from), cmpopts.IgnoreUnexported(install.Executable{})); diff != "" {
			t.Error(diff)
		}
		stat, err := os.Stat(to)
		if err != nil || stat.Mode() != 0o755 || !bytes.Equal(read(t, to), read(t, step.from)) {
			t.Errorf("%v, %v", stat, err)
		}
		alone(t, bin)
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
		{nil, remedy.Usage, []string{"--cni-bin-dir is missing", "/opt/cni/bin"}},
		{[]string{"--cni-bin-dir", taken, "--from", good}, remedy.Blind, []string{" is not a regular file (mode d", "move it away"}},
		{[]string{"--cni-bin-dir", bin, "--from", bin}, remedy.Blind, []string{bin + " is not a regular file"}},
		{[]string{"--cni-bin-dir", bin, "--from", bin + "/nothing"}, remedy.Blind, []string{"no such file", "--from"}},
		{[]string{"--cni-bin-dir", bin + "/nothing", "--from", good}, remedy.Blind, []string{"no such file", "--cni-bin-dir: ", "name the directory"}},
		{[]string{"--cni-bin-dir", "/proc", "--from", good}, remedy.Blind, []string{"/proc"}},
		{[]string{"--host", hosts + "i40e.txtar", "--cni-bin-dir", bin}, remedy.Usage, []string{"captured host", "leave --host out"}},
	} {
		o := ctl(append([]string{"install"}, c.args...)...)
		for _, says := range c.says {
			if o.exit != c.exit || o.stdout != "" || !strings.Contains(o.stderr, says) {
				t.Errorf("%q: %+v; want exit %d and %q", c.args, o, c.exit, says)
			}
		}
	}
	alone(t, bin)
}

// In cni-dra-driver's container, which may not have the directory mounted that the node's
// settings name: an empty journal would let every plugin through.
func TestInstallRefusesIfItDoesNotSeeTheJournalThatTheSettingsName(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "devinfo")
	undertest.Programs(t, plugin, "", "../devinfo")
	bin, settings := t.TempDir(), filepath.Join(t.TempDir(), "node.json")
	for stateDir, exit := range map[string]int{"/proc/none/state": remedy.Blind, filepath.Join(t.TempDir(), "state"): 0} {
		must(t, os.WriteFile(settings, fmt.Appendf(nil, `{"stateDir": %q}`, stateDir), 0o600))
		o := ctl("--node-config", settings, "install", "--cni-bin-dir", bin, "--from", plugin)
		if o.exit != exit || exit != 0 && !strings.Contains(o.stderr, "stateDir: "+stateDir+" is not there and cannot be made") || strings.Contains(o.stderr, bin) {
			t.Errorf("%+v", o)
		}
		must(t, os.RemoveAll(filepath.Join(bin, "devinfo")))
	}
}

func TestDirectoryThatMayNotBeWrittenIsNamed(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	bin := t.TempDir()
	must(t, os.Chmod(bin, 0o555))
	o := ctl("install", "--cni-bin-dir", bin, "--from", fakePlugin(t, t.TempDir(), speaks))
	if o.exit != remedy.Blind || !strings.Contains(o.stderr, "permission denied\n  run as root, or as the owner of "+bin) {
		t.Errorf("%+v", o)
	}
}

// Root is told by the error itself what keeps it from writing.
func TestRootIsNotToldToBeRoot(t *testing.T) {
	err := installError(&fs.PathError{Op: "open", Path: "/bin/.devinfo", Err: fs.ErrPermission}, "/bin", "/from")
	if found := new(remedy.Error); errors.As(err, &found) == (os.Geteuid() == 0) {
		t.Errorf("%#v", err)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	return data
}

// alone checks that nothing but the plugin was left in a directory.
func alone(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "devinfo" {
			t.Errorf("%s was left behind", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
