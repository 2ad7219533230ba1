package install_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

func TestMain(m *testing.M) { undertest.Temp(m) }

// built returns the path of a devinfo plugin that was built with the given version.
func built(t *testing.T, version string) string {
	t.Helper()
	return filepath.Join(undertest.Once(t, version, "../../../cmd/devinfo"), install.Name)
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
func keeper(t *testing.T, from string) *install.PluginFile {
	t.Helper()
	return &install.PluginFile{From: from, Dir: t.TempDir(), Newer: none}
}

// keep expects that Keep succeeds with the given state.
func keep(t *testing.T, p *install.PluginFile, state string) *install.Installation {
	t.Helper()
	writes := watched(t, p.Dir)
	done, err := p.Keep(context.Background())
	difftest.Same(t, state+": Keep writes to the directory", writes(), state != install.AlreadyThere)
	must(t, err, done.Warning)
	difftest.Equal(t, done.State, state)
	holds(t, p.Dir, p.From)
	return done
}

// watched returns whether files in a directory have been created, renamed or removed since.
func watched(t *testing.T, dir string) (changed func() bool) {
	t.Helper()
	long := time.Unix(1, 0)
	must(t, os.Chtimes(dir, long, long))
	return func() bool {
		stat, err := os.Stat(dir)
		must(t, err)
		return !stat.ModTime().Equal(long)
	}
}

// refuse expects that Keep returns an error with the given text and changes no file.
func refuse(t *testing.T, p *install.PluginFile, says string) {
	t.Helper()
	before := listing(t, p.Dir)
	done, err := p.Keep(context.Background())
	expect(t, err, says)
	difftest.Same(t, "state, and files", []any{done.State, listing(t, p.Dir)}, []any{"", before})
}

// removes expects that a removal succeeds, whether it has removed something, and how many files it leaves.
func removes(t *testing.T, what, dir string, want bool, left int) func(removed bool, err error) {
	return func(removed bool, err error) {
		t.Helper()
		must(t, err)
		difftest.Same(t, what+": removed, and files left", []any{removed, len(difftest.Files(t, dir))}, []any{want, left})
	}
}

// holds expects that dir contains the plugin from and its mark, and no other file.
func holds(t *testing.T, dir, from string) {
	t.Helper()
	to := filepath.Join(dir, install.Name)
	stat, err := os.Lstat(to)
	if err != nil || stat.Mode() != 0o755 || int(stat.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		t.Fatalf("%v, %v", stat, err)
	}
	if read(t, to) != read(t, from) {
		t.Fatalf("%s has other content than %s", to, from)
	}
	difftest.Holds(t, dir, ".devinfo.sha256", install.Name)
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

func TestPluginIsInstalledAndRestored(t *testing.T) {
	p := keeper(t, built(t, "v1.2.0"))
	to := filepath.Join(p.Dir, install.Name)
	first := keep(t, p, install.Installed)
	difftest.Equal(t, []any{first.Old == nil, first.New.Version, len(first.New.CNIVersions), first.Path}, []any{true, "v1.2.0", 7, to})
	keep(t, p, install.AlreadyThere)
	another := &install.PluginFile{From: p.From, Dir: filepath.Join(t.TempDir(), "bin"), Newer: none} // has an empty cache, like an agent after a restart
	must(t, os.Symlink(p.Dir, another.Dir))
	keep(t, another, install.AlreadyThere)

	for name, spoil := range map[string]func() error{
		"removed":  func() error { return os.Remove(to) },
		"cut":      func() error { return os.Truncate(to, 1<<20) },
		"emptied":  func() error { return os.Truncate(to, 0) },
		"writable": func() error { return os.Chmod(to, 0o777) },
		"another's": func() error {
			if os.Geteuid() != 0 {
				return nil // nobody else's file can be made
			}
			return os.Chown(to, 1000, 1000)
		},
		"not run":  func() error { return os.Chmod(to, 0o644) },
		"a script": func() error { return os.WriteFile(to, []byte("#!/bin/sh\n"), 0o755) },
		"a link":   func() error { return errors.Join(os.Remove(to), os.Symlink("/nowhere", to)) },
		"unmarked": func() error { return os.Remove(filepath.Join(p.Dir, ".devinfo.sha256")) },
		"left over": func() error {
			return errors.Join(os.Remove(to), os.WriteFile(filepath.Join(p.Dir, ".devinfo.devinfo"), nil, 0o600))
		},
	} {
		for _, p := range []*install.PluginFile{p, another} {
			must(t, spoil())
			if done, err := p.Keep(context.Background()); err != nil {
				t.Errorf("%s: %+v, %v", name, done, err)
			}
			holds(t, p.Dir, p.From)
		}
	}
	if out, err := exec.Command(to, "--version").Output(); err != nil || !strings.HasPrefix(string(out), "devinfo v1.2.0, ") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestUnreadableEntriesPreventInstallation(t *testing.T) {
	p := keeper(t, built(t, "v1.2.0"))
	p.OverwriteForeign, p.Newer = true, entries(t, `{"format": 4, "args": "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web"}`, `{"format": 9}`)
	says := "the journal has entries in a newer format than 3, the newest that devinfo v1.2.0 reads: install the devinfo that wrote them, or delete these first: net/c1/net1, shop/web"
	refuse(t, p, says)
	script(t, p.Dir)
	refuse(t, p, says)
	p.Newer = func(int) ([]string, error) { return strings.Fields(strings.Repeat("shop/db ", 23)), nil }
	refuse(t, p, "shop/db and 3 more")
	p.Newer = func(int) ([]string, error) { return nil, errors.New("unreadable") }
	refuse(t, p, "cannot check that devinfo v1.2.0 can read the journal's entries: unreadable")
	unreadable := p.Newer
	p.Newer = entries(t, `{"format": 2}`, `{}`)
	keep(t, p, install.Replaced)
	p.Newer = unreadable
	keep(t, p, install.AlreadyThere)
}

// A devinfo that does not support --version, or not yet, is identified by the linker's build information.
func TestBuildWithoutVersionFlagIsReplaced(t *testing.T) {
	p := keeper(t, built(t, "v1.2.0"))
	old, module := filepath.Join(p.Dir, install.Name), t.TempDir()
	write(t, filepath.Join(module, "main.go"), `package main

import "os"

func main() {
	if os.Getenv("CNI_COMMAND") == "VERSION" {
		os.Stdout.WriteString("{\"cniVersion\": \"1.1.0\", \"supportedVersions\": [\"1.0.0\"]}")
	} else if text, err := os.ReadFile(os.Args[0] + ".version"); err == nil {
		os.Stdout.Write(text)
	}
}
`, 0o644)
	write(t, filepath.Join(module, "go.mod"), "module devinfo-cni.io/cmd/devinfo\n\ngo 1.24\n", 0o644)
	cmd := exec.Command("go", "build", "-o", old, ".")
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod -trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	former := filepath.Join(module, "former")
	write(t, former, read(t, old), 0o755)
	done := keep(t, p, install.Replaced)
	difftest.Equal(t, done.Old.Version+done.Old.Problem, "")
	p.From = former
	refuse(t, p, "former is not a devinfo plugin with --version: use the agent and the plugin of one build")
	write(t, former+".version", "devinfo v0.1.0\njournal format 1\n", 0o644)
	keep(t, p, install.Replaced)
}

func TestForeignFileIsLeftAlone(t *testing.T) {
	p := keeper(t, built(t, "v1.2.0"))
	to := script(t, p.Dir)
	write(t, filepath.Join(p.Dir, ".devinfo.sha256"), "torn  devinfo", 0o644)
	refuse(t, p, to+" is not a devinfo plugin: remove it, or overwrite it with --overwrite-foreign")
	removes(t, "another program", p.Dir, false, 2)(p.Remove(t.Context()))
	must(t, os.Remove(to), os.Mkdir(to, 0o755))
	refuse(t, p, "is not a regular file (mode drwxr-xr-x): move it away")
	_, err := p.Remove(t.Context())
	expect(t, err, "is not a regular file")
}

func TestForeignPluginIsNotInstalled(t *testing.T) {
	p := keeper(t, script(t, t.TempDir()))
	refuse(t, p, "is not a devinfo plugin with --version")
	p.From = filepath.Join(t.TempDir(), "other")
	for _, body := range []string{"", "exit 3", "echo 1.1.0", "echo '{}'", "exec /nowhere/devinfo"} {
		write(t, p.From, "#!/bin/sh\n"+body+"\n", 0o755)
		refuse(t, p, "does not run here: VERSION")
	}
	p.From += "-gone"
	refuse(t, p, "no such file")
	p.From = "/proc/self/mem" // a file whose first byte cannot be read
	refuse(t, p, "input/output error")

	p = keeper(t, filepath.Join(t.TempDir(), "changes"))
	for says, change := range map[string]func() error{
		"devinfo: the source file changed while it was being copied": func() error { return os.WriteFile(p.From, []byte(read(t, built(t, "v1.3.0"))), 0o755) },
		"changes: not a regular file (mode prw":                      func() error { return unix.Mkfifo(p.From, 0o755) },
		"changes: no such file or directory":                         func() error { return nil },
	} {
		write(t, p.From, read(t, built(t, "v1.2.0")), 0o755)
		p.Newer = func(int) ([]string, error) { return nil, errors.Join(os.Remove(p.From), change()) }
		_, err := p.Keep(t.Context())
		expect(t, err, says)
		difftest.Holds(t, p.Dir, ".devinfo.sha256")
		must(t, os.RemoveAll(p.From))
	}
	write(t, p.From, read(t, built(t, "v1.3.0")), 0o755)
	p.Newer = none
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := p.Keep(ended)
	expect(t, err, "does not run here: VERSION: context canceled")
	keep(t, p, install.Installed)
	p.Dir += "/none"
	_, err = p.Keep(t.Context())
	expect(t, err, "--cni-bin-dir: stat "+p.Dir)
}

func TestRemoveRemovesDevinfoAndItsLeftovers(t *testing.T) {
	for name, make := range map[string]func(p *install.PluginFile){
		"kept":      func(p *install.PluginFile) { keep(t, p, install.Installed) },
		"by hand":   func(p *install.PluginFile) { write(t, filepath.Join(p.Dir, install.Name), read(t, p.From), 0o755) },
		"half gone": func(p *install.PluginFile) { write(t, filepath.Join(p.Dir, ".devinfo.sha256"), "", 0o644) },
		"cut short": func(p *install.PluginFile) { write(t, filepath.Join(p.Dir, ".devinfo.devinfo"), "half", 0o600) },
		"nothing":   func(*install.PluginFile) {},
	} {
		p := keeper(t, built(t, "v1.2.0"))
		make(p)
		_, before := os.Stat(filepath.Join(p.Dir, install.Name))
		removes(t, name, p.Dir, before == nil, 0)(p.Remove(t.Context()))
		must(t, os.RemoveAll(p.Dir))
		removes(t, name+", without the directory", p.Dir, false, 0)(p.Remove(t.Context()))
	}
}

// An update, a downgrade, and a build without a version, by both.
func TestKeepAndPlaceFollowTheSameRules(t *testing.T) {
	low, high := built(t, "v1.2.0"), built(t, "v1.3.0")
	for files, install := range map[int]func(*install.PluginFile) (*install.Installation, error){
		1: func(p *install.PluginFile) (*install.Installation, error) { return p.Place(t.Context()) },
		2: func(p *install.PluginFile) (*install.Installation, error) { return p.Keep(t.Context()) },
	} {
		p := keeper(t, low)
		succeeds := func(from, state string) {
			t.Helper()
			p.From = from
			done, err := install(p)
			if err != nil || done.State != state || read(t, filepath.Join(p.Dir, "devinfo")) != read(t, from) || len(listing(t, p.Dir)) != files {
				t.Errorf("got %+v, %v; want %q, and %d files of %v", done, err, state, files, difftest.Names(t, p.Dir))
			}
		}
		succeeds(low, "installed")
		succeeds(low, "already there")
		for _, from := range []string{high, low, built(t, "c0ffee0"), low} {
			succeeds(from, "replaced")
		}
		p.Newer, p.From = entries(t, `{"format": 99}`), high
		_, err := install(p)
		expect(t, err, "the journal has entries in a newer format")
		p.Newer = none
		must(t, os.RemoveAll(p.Dir))
		script(t, p.Dir)
		_, err = install(p)
		expect(t, err, "is not a devinfo plugin: remove it, or overwrite it with --overwrite-foreign")
		p.OverwriteForeign = true
		succeeds(high, "replaced")
	}
}

func TestRemovePlacedRemovesOnlyThePluginOfTheDriver(t *testing.T) {
	low, high := built(t, "v1.2.0"), built(t, "v1.3.0")
	for name, c := range map[string]struct {
		before, after func(*install.PluginFile)
		left          int
	}{
		"installed":      {},
		"replaced":       {before: func(p *install.PluginFile) { write(t, filepath.Join(p.Dir, install.Name), read(t, low), 0o755) }},
		"removed since":  {after: func(p *install.PluginFile) { must(t, os.Remove(filepath.Join(p.Dir, install.Name))) }},
		"replaced since": {after: func(p *install.PluginFile) { write(t, filepath.Join(p.Dir, install.Name), read(t, low), 0o755) }, left: 1},
		"kept by an agent": {after: func(p *install.PluginFile) {
			_, err := (&install.PluginFile{From: high, Dir: p.Dir, Newer: none}).Keep(t.Context())
			must(t, err)
		}, left: 2},
		"of an administrator before": {before: func(p *install.PluginFile) { write(t, filepath.Join(p.Dir, install.Name), read(t, high), 0o755) }, left: 1},
	} {
		p := keeper(t, high)
		p.ForDriver = true
		if c.before != nil {
			c.before(p)
		}
		for range 2 { // the init container runs at each start
			_, err := p.Place(t.Context())
			must(t, err)
		}
		if c.after != nil {
			c.after(p)
		}
		want := c.left == 0 && name != "removed since"
		removes(t, name, p.Dir, want, c.left)(p.RemovePlaced())
		removes(t, name+", again", p.Dir, false, c.left)(p.RemovePlaced())
	}
	p := keeper(t, high)
	p.ForDriver = true
	_, err := p.Place(t.Context())
	to := filepath.Join(p.Dir, install.Name)
	must(t, err, os.Remove(to), os.Symlink(install.Name, to)) // cannot be read
	_, err = p.RemovePlaced()
	difftest.Is(t, err, syscall.ELOOP)
	difftest.Holds(t, p.Dir, ".devinfo.cni-dra-driver.sha256", install.Name) // for another attempt
}

// Whoever of the two uninstalls first leaves the plugin to the other, also if the agent has replaced it since.
func TestRemoveLeavesThePluginOfTheDriver(t *testing.T) {
	low, high := built(t, "v1.2.0"), built(t, "v1.3.0")
	for name, order := range map[string][]string{
		"the driver's, replaced by an agent": {"driver", low, "agent", high},
		"the driver's, kept by an agent":     {"driver", low, "agent", low},
		"an agent's, taken by the driver":    {"agent", low, "driver", low},
		"the driver's alone":                 {"driver", low},
	} {
		p := keeper(t, "")
		p.ForDriver = true
		for n := 0; n < len(order); n += 2 {
			p.From = order[n+1]
			done := map[string]func(context.Context) (*install.Installation, error){"driver": p.Place, "agent": p.Keep}[order[n]]
			_, err := done(t.Context())
			must(t, err)
		}
		for range 2 {
			removes(t, name, p.Dir, false, 2)(p.Remove(t.Context()))
			difftest.Same(t, name+": the plugin is left", read(t, filepath.Join(p.Dir, install.Name)) == read(t, p.From), true)
		}
		mark := filepath.Join(p.Dir, ".devinfo.sha256") // which cannot be removed
		must(t, os.MkdirAll(mark+"/full", 0o755))
		_, err := p.Remove(t.Context())
		difftest.Is(t, err, syscall.ENOTEMPTY)
		must(t, os.RemoveAll(mark))
		removes(t, name+", by the driver", p.Dir, true, 0)(p.RemovePlaced())
	}
}

// The settings show the rest, by the same function.
func TestProgramIsRestored(t *testing.T) {
	dir := t.TempDir()
	from, to, other := filepath.Join(dir, "from"), filepath.Join(dir, "program"), filepath.Join(dir, "other")
	write(t, from, "one", 0o755)
	write(t, other, "somebody's", 0o755)
	var former os.FileInfo
	for _, spoil := range []func(){func() {}, func() { must(t, os.Chmod(to, 0o777)) }, func() { write(t, to, "broken", 0o755) }} {
		spoil()
		for again := range 2 {
			_, err := install.Program(from, to)
			must(t, err)
			stat, err := os.Lstat(to)
			if err != nil || stat.Mode() != 0o755 || read(t, to) != "one" || again > 0 && !os.SameFile(stat, former) {
				t.Errorf("%v, %v", stat, err)
			}
			former = stat
		}
	}
	_, err := install.Program(from, from)
	must(t, err)
	_, err = install.Program(from, other)
	expect(t, err, "is a different program: move it away")
	_, err = install.Program(from+"-gone", to)
	difftest.Is(t, err, os.ErrNotExist)
	marked := read(t, filepath.Join(dir, ".program.sha256"))
	must(t, install.RemoveProgram(other), install.RemoveProgram(to), install.RemoveProgram(to))
	difftest.Holds(t, dir, "from", "other")
	write(t, filepath.Join(dir, ".program.sha256"), marked, 0o644)
	must(t, os.MkdirAll(filepath.Join(to, "full"), 0o755))
	difftest.Is(t, install.RemoveProgram(to), syscall.ENOTEMPTY)
	difftest.Holds(t, dir, ".program.sha256", "from", "other", "program") // for another attempt
}

const (
	quiet = `{"logLevel": "error"}` + "\n"
	loud  = `{"logLevel": "debug"}` + "\n"
)

// arranger returns an installation of the settings of node n1.
func arranger(t *testing.T) *install.Settings {
	t.Helper()
	return &install.Settings{Dir: t.TempDir(), Node: "n1", To: filepath.Join(t.TempDir(), "devinfo", "node.json")}
}

// arrange expects the results of Keep and the content of the settings afterwards; "" = the file does not
// exist.
func arrange(t *testing.T, s *install.Settings, from, state, holds string) {
	t.Helper()
	writes := func() bool { return true }
	if state == install.AlreadyThere {
		writes = watched(t, filepath.Dir(s.To))
	}
	done, err := s.Keep()
	difftest.Same(t, state+": Keep writes to the directory", writes(), state != install.AlreadyThere)
	if from != "" {
		from = filepath.Join(s.Dir, from)
	}
	wanted, wantedErr := s.Wanted()
	want, wantErr := config.ParseNode([]byte(cmp.Or(holds, "{}")), "")
	must(t, err, done.Warning, wantedErr, wantErr)
	difftest.Same(t, "source, state, and the settings that Keep would install", []any{done.From, done.State, wanted}, []any{from, state, want})
	settled(t, s, holds)
}

func settled(t *testing.T, s *install.Settings, holds string) {
	t.Helper()
	list := map[string]string{}
	if _, err := os.Stat(filepath.Dir(s.To)); err == nil {
		list = listing(t, filepath.Dir(s.To))
	}
	files := 2 // with the mark
	if holds == "" {
		files = 0
	}
	difftest.Same(t, "the settings, and files", []any{list["node.json"], len(list)}, []any{holds, files})
}

func TestSettingsOfTheNodePrecedeTheDefault(t *testing.T) {
	s := arranger(t)
	arrange(t, s, "", "", "")
	write(t, filepath.Join(s.Dir, "default.json"), quiet, 0o644)
	write(t, filepath.Join(s.Dir, "n2.json"), "nonsense", 0o644)
	arrange(t, s, "default.json", install.Installed, quiet)
	arrange(t, s, "default.json", install.AlreadyThere, quiet)
	write(t, filepath.Join(s.Dir, "n1.json"), loud, 0o644)
	arrange(t, s, "n1.json", install.Replaced, loud)
	if stat, err := os.Stat(s.To); err != nil || stat.Mode() != 0o644 {
		t.Errorf("%v, %v", stat, err)
	}
	write(t, s.To, "by hand", 0o644)
	arrange(t, s, "n1.json", install.Replaced, loud)
	must(t, os.Remove(s.To))
	arrange(t, s, "n1.json", install.Installed, loud)
	must(t, os.Remove(filepath.Join(s.Dir, "n1.json")), os.Remove(filepath.Join(s.Dir, "default.json")))
	arrange(t, s, "", install.Removed, "")
	arrange(t, s, "", "", "")
}

// A ConfigMap with defaults.json in place of default.json has no effect.
func TestFilesOfOtherNodesAreIgnored(t *testing.T) {
	s := arranger(t)
	for _, test := range []struct{ adds, only string }{
		{"..data", ""}, {"defaults.json", "defaults.json"}, {"n2.json", "defaults.json, n2.json"}, {"a", "a, defaults.json, n2.json"},
		{"b", "a, b, defaults.json and 1 more"}, {"default.json", ""},
	} {
		write(t, filepath.Join(s.Dir, test.adds), quiet, 0o644)
		done, err := s.Keep()
		must(t, err)
		difftest.Same(t, test.adds, done.Ignored != nil, test.only != "")
		if test.only != "" {
			expect(t, done.Ignored, s.Dir+" has no settings for this node, n1.json or default.json, but has "+test.only+": rename the file that is for all nodes to default.json, or add a default.json with {} for the defaults")
		}
	}
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		`{"logLevel": "loud"}`: `default.json: logLevel: "loud" is not one of debug, info, warn, error; the settings were not installed`,
		`{"logLevl": "warn"}`:  `logLevl: the key is not known`,
	} {
		s := arranger(t)
		from := filepath.Join(s.Dir, "default.json")
		write(t, from, text, 0o644)
		_, err := s.Keep()
		expect(t, err, says)
		settled(t, s, "")
		write(t, from, quiet, 0o644)
		arrange(t, s, "default.json", install.Installed, quiet)
		write(t, from, text, 0o644)
		_, err = s.Keep()
		expect(t, err, says)
		settled(t, s, quiet)
	}
}

// A missing volume must not be mistaken for a volume without settings.
func TestSettingsStayWhileTheirDirectoryIsMissing(t *testing.T) {
	s := arranger(t)
	write(t, filepath.Join(s.Dir, "default.json"), quiet, 0o644)
	arrange(t, s, "default.json", install.Installed, quiet)
	own := filepath.Join(s.Dir, "n1.json") // which must not be mistaken for none either
	must(t, os.Symlink("n1.json", own))
	for _, says := range []string{own + ": too many levels of symbolic links", "--settings-dir: stat "} {
		_, err := s.Keep()
		expect(t, err, says)
		_, err = s.Wanted()
		expect(t, err, says)
		settled(t, s, quiet)
		must(t, os.RemoveAll(s.Dir))
	}
	write(t, filepath.Join(s.Dir, "default.json"), quiet, 0o644)
	s.To = filepath.Join(s.Dir, "none/devinfo/node.json")
	_, err := s.Keep()
	expect(t, err, "mkdir "+s.Dir)
}

func TestForeignSettingsAreLeftAlone(t *testing.T) {
	s := arranger(t)
	must(t, os.Mkdir(filepath.Dir(s.To), 0o755))
	write(t, s.To, loud, 0o600)
	arrangeNothing := func() {
		t.Helper()
		if removed, err := s.Remove(); removed || err != nil || read(t, s.To) != loud {
			t.Errorf("removed %v, %v", removed, err)
		}
	}
	arrangeNothing()
	write(t, filepath.Join(s.Dir, "default.json"), quiet, 0o644)
	_, err := s.Keep()
	expect(t, err, s.To+" was not installed by an agent: remove it, or overwrite it with --overwrite-foreign")
	arrangeNothing()
	s.OverwriteForeign = true
	arrange(t, s, "default.json", install.Replaced, quiet)
	write(t, s.To, loud, 0o600) // an administrator changes the file
	arrangeNothing()
	write(t, s.To, quiet, 0o600)
	if removed, err := s.Remove(); !removed || err != nil {
		t.Errorf("removed %v, %v", removed, err)
	}
	settled(t, s, "")
}
