package install_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/install"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/test/undertest"
)

func TestMain(m *testing.M) { undertest.Temp(m) }

// built returns the path of a devinfo plugin that was built with the given version.
func built(t *testing.T, version string) string {
	t.Helper()
	return filepath.Join(undertest.Once(t, version, "../../cmd/devinfo"), install.Name)
}

// script writes a plugin that is not devinfo.
func script(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, install.Name)
	write(t, path, "#!/bin/sh\necho '{\"cniVersion\": \"1.1.0\", \"supportedVersions\": [\"1.0.0\"]}'\n", 0o755)
	return path
}

var must, expect, read, write = difftest.Must, difftest.Says, difftest.Read, difftest.Write

// none reports no entries in a newer format.
func none(int) ([]string, error) { return nil, nil }

// keeper returns an installation of the plugin from in a new directory.
func keeper(t *testing.T, from string) *install.Plugin {
	t.Helper()
	return &install.Plugin{From: from, Dir: t.TempDir(), Newer: none}
}

// keep expects that Keep succeeds with the given state.
func keep(t *testing.T, p *install.Plugin, state string) *install.Installation {
	t.Helper()
	done, err := p.Keep(context.Background())
	if err != nil || done.State != state || done.Warning != nil {
		t.Fatalf("got %+v, %v; want %q", done, err, state)
	}
	holds(t, p.Dir, p.From)
	return done
}

// refuse expects that Keep returns an error with the given text and changes no file.
func refuse(t *testing.T, p *install.Plugin, says string) {
	t.Helper()
	before := fmt.Sprint(listing(t, p.Dir))
	done, err := p.Keep(context.Background())
	expect(t, err, says)
	if done.State != "" {
		t.Errorf("state %q", done.State)
	}
	if after := fmt.Sprint(listing(t, p.Dir)); after != before {
		t.Errorf("the directory was\n%s\nand is\n%s", before, after)
	}
}

// holds expects that dir contains the plugin from and its mark, and no other file.
func holds(t *testing.T, dir, from string) {
	t.Helper()
	to := filepath.Join(dir, install.Name)
	stat, err := os.Lstat(to)
	if err != nil || stat.Mode() != 0o755 {
		t.Fatalf("%v, %v", stat, err)
	}
	if read(t, to) != read(t, from) {
		t.Fatalf("%s has other content than %s", to, from)
	}
	if names := listing(t, dir); len(names) != 2 || names[".devinfo.sha256"] == "" {
		t.Errorf("in the directory: %q", names)
	}
}

// listing returns the content of the files in a directory by name.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	all := map[string]string{}
	for _, e := range entries {
		if data, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
			all[e.Name()] = string(data)
		} else {
			all[e.Name()] = e.Type().String()
		}
	}
	return all
}

// entries returns the method Newer of a journal that contains the given entries.
func entries(t *testing.T, texts ...string) func(int) ([]string, error) {
	t.Helper()
	dir := t.TempDir()
	for n, text := range texts {
		key := fmt.Sprintf(`{"network": "net", "containerID": "c%d", "ifName": "net1", `, n)
		write(t, filepath.Join(dir, "attachments", fmt.Sprintf("net@c%d@net1", n)), strings.Replace(text, "{", key, 1), 0o600)
	}
	return journal.Open(dir, "").Newer
}
