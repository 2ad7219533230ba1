package install_test

import (
	"os"
	"path/filepath"
	"testing"

	"devinfo-cni.io/pkg/install"
)

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
	done, err := s.Keep()
	if from != "" {
		from = filepath.Join(s.Dir, from)
	}
	if err != nil || done.Warning != nil || done.From != from || done.State != state {
		t.Fatalf("got %+v, %v", done, err)
	}
	settled(t, s, holds)
}

func settled(t *testing.T, s *install.Settings, holds string) {
	t.Helper()
	list := map[string]string{}
	if _, err := os.Stat(filepath.Dir(s.To)); err == nil {
		list = listing(t, filepath.Dir(s.To))
	}
	switch {
	case list["node.json"] != holds:
		t.Errorf("the settings are %q, want %q", list["node.json"], holds)
	case holds == "" && len(list) > 0, holds != "" && len(list) != 2:
		t.Errorf("in the directory: %q", list)
	}
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
		{"b", "a, b, defaults.json, 1 more"}, {"default.json", ""},
	} {
		write(t, filepath.Join(s.Dir, test.adds), quiet, 0o644)
		done, err := s.Keep()
		must(t, err)
		if test.only != "" {
			expect(t, done.Ignored, s.Dir+" has no settings for this node (n1.json or default.json), only "+test.only+": name the file for all nodes default.json, or add default.json with {}")
		} else if done.Ignored != nil {
			t.Errorf("%s: %v", test.adds, done.Ignored)
		}
	}
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		`{"logLevel": "loud"}`:          `default.json: logLevel: "loud" is not one of debug, info, warn, error; the settings were not installed`,
		`{"logLevl": "warn"}`:           `logLevl: the key is not known`,
		`{"stateDir": "var"}`:           "is not an absolute path",
		`{"allowedDevices": ["1:2:3"]}`: "allowedDevices",
		``:                              "unexpected end of JSON input",
		quiet + loud:                    "after top-level value",
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
	must(t, os.RemoveAll(s.Dir))
	_, err := s.Keep()
	expect(t, err, "--settings-dir: stat ")
	settled(t, s, quiet)
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
