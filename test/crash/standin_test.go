package crash_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/link/linktest"
)

// A standIn is a plugin in the place of devinfo, which finds no device but always says
// the same, and has a defect: the test binary under its name. It keeps an entry for
// each attachment, which names the file.
type standIn struct {
	torn      bool // writes the device-info file in place
	late      bool // writes the entry after the file
	forgetful bool // leaves temporary files
	trampling bool // removes everybody's files if it cannot remove its own
	lying     bool // does not look whether writing has worked
	alone     bool // no defect: while it runs, the others wait
}

var standIns = map[string]standIn{
	"sound": {}, "torn": {torn: true}, "late": {late: true}, "forgetful": {forgetful: true}, "trampling": {trampling: true}, "lying": {lying: true},
	"alone": {alone: true},
}

// answer ends a plugin that is a stand-in.
func answer(err error) {
	if err != nil {
		fmt.Printf(`{"cniVersion": "1.1.0", "code": 5, "msg": %q}`, err)
		os.Exit(1)
	}
}

// run is the plugin.
func (s standIn) run() error {
	var c struct {
		Name          string
		RuntimeConfig struct{ CNIDeviceInfoFile string }
	}
	stdin, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(stdin, &c)
	}
	file := c.RuntimeConfig.CNIDeviceInfoFile
	entry := filepath.Join(stateDir, c.Name+"@"+os.Getenv("CNI_CONTAINERID")+"@"+os.Getenv("CNI_IFNAME"))
	if s.alone {
		var dir *os.File
		if dir, err = os.Open(stateDir); err == nil {
			err = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
			defer dir.Close()
		}
	}
	switch verb := os.Getenv("CNI_COMMAND"); {
	case err != nil:
	case verb == "ADD":
		err = s.add(entry, file)
	case verb == "DEL":
		err = s.del(entry, file)
	case verb == "GC":
		err = s.gc(c.Name)
	}
	return err
}

func (s standIn) add(entry, file string) error {
	const info = `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "` + vf + `"}}`
	if file == "" {
		_, err := fmt.Print(`{"cniVersion": "1.1.0"}`)
		return err
	}
	steps := []func() error{
		func() error { return write(entry, file) },
		func() error { return write(file, info) },
	}
	if s.torn {
		steps[1] = func() error { return os.WriteFile(file, []byte(info), 0o644) }
	}
	if s.late {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil && !s.lying {
			return errors.Join(err, s.del(entry, file))
		}
	}
	_, err := fmt.Print(`{"cniVersion": "1.1.0"}`)
	return err
}

func temporary(path string) string { return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)) }

func write(path, text string) error {
	err := os.WriteFile(temporary(path), []byte(text), 0o644)
	if err != nil {
		return err
	}
	return os.Rename(temporary(path), path)
}

func (s standIn) del(entry, file string) error {
	paths := []string{temporary(entry), entry} // the entry last
	switch {
	case file == "":
	case s.forgetful:
		paths = append([]string{file}, paths...)
	default:
		paths = append([]string{temporary(file), file}, paths...)
	}
	for _, path := range paths {
		err := os.Remove(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if s.trampling {
			err = errors.Join(err, os.RemoveAll(infoDir))
		}
		return err
	}
	return nil
}

func (s standIn) gc(network string) error {
	entries, err := os.ReadDir(stateDir)
	for _, e := range entries {
		name := strings.TrimPrefix(e.Name(), ".")
		if !strings.HasPrefix(name, network+"@") {
			continue
		}
		file, e := os.ReadFile(filepath.Join(stateDir, name)) // not there, and then there is no file, or whole
		if errors.Is(e, fs.ErrNotExist) {
			e = nil
		}
		err = errors.Join(err, e, s.del(filepath.Join(stateDir, name), string(file)))
	}
	return err
}

// The plugin marker has a file for each attachment, which its ADD makes last of all. It is
// a delegate: were its caller's DEL not to wait for an ADD that is under way, the file
// would be left.
const (
	marker  = "marker"
	markDir = "/run/marks"
)

// mark is the plugin marker.
func mark() error {
	file := filepath.Join(markDir, os.Getenv("CNI_CONTAINERID")+"_"+os.Getenv("CNI_IFNAME"))
	switch os.Getenv("CNI_COMMAND") {
	case "ADD":
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			return err
		}
		_, err := fmt.Printf(`{"cniVersion": "1.1.0", "interfaces": [{"name": %q, "sandbox": %q}]}`, os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS"))
		return err
	case "CHECK":
		_, err := os.Stat(file)
		return err
	case "DEL":
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	case "VERSION":
		_, err := fmt.Print(`{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}`)
		return err
	}
	return nil
}

func TestAStandInWithADefectIsCaught(t *testing.T) {
	for name, c := range map[string]struct {
		verb, fault string
		want        string // the beginning of what goes wrong; "" is nothing
	}{
		"sound":     {"ADD", "SIGKILL", ""},
		"torn":      {"ADD", "SIGKILL", "torn: " + ours.path("net")},
		"late":      {"ADD", "SIGKILL", "left: " + ours.path("net")},
		"forgetful": {"ADD", "SIGKILL", "left: " + temporary(ours.path("net"))},
		"trampling": {"DEL", "EIO", "of another attachment, gone: " + infoDir},
		"lying":     {"ADD", "ENOSPC", "ADD succeeded, but did not write " + ours.path("net")},
	} {
		t.Run(name, func(t *testing.T) {
			linktest.Run(t, func(t *testing.T) {
				s := scenario{name: name, conf: ours.standalone("net")}
				w := newWorld(t, "")
				w.plugin = w.program(name)
				w.settle(s)
				tl := w.tryAll(s, func(trials []trial) []trial {
					return slices.DeleteFunc(trials, func(tr trial) bool { return tr.verb != c.verb || tr.fault.name != c.fault })
				})
				found := c.want == "" && len(tl.found) == 0 && len(tl.cells) > 0
				for class := range tl.found {
					found = found || c.want != "" && strings.HasPrefix(class, c.want)
				}
				if !found {
					t.Errorf("found %q, want %q", slices.Collect(maps.Keys(tl.found)), c.want)
				}
			})
		})
	}
}
