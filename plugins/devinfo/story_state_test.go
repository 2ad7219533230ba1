package devinfo_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/test/difftest"
)

// sections are the sections that a step is expected to produce. Empty ones are left out.
type sections []txtar.File

func (s *sections) add(name, text string) {
	if text != "" {
		*s = append(*s, txtar.File{Name: name, Data: []byte(section(text))})
	}
}

func (s sections) has(name string) bool {
	return slices.ContainsFunc(s, func(one txtar.File) bool { return one.Name == name })
}

// section returns text in the form of a section, with a newline at its end.
func section(text string) string {
	switch {
	case text == "":
		return "(empty)\n"
	case strings.HasSuffix(text, "\n"):
		return text
	}
	return text + "\\\n"
}

// cniError parses standard output, which must be exactly one CNI error.
func cniError(t *testing.T, stdout []byte) string {
	dec := json.NewDecoder(bytes.NewReader(stdout))
	dec.DisallowUnknownFields()
	var e struct {
		CNIVersion string
		types.Error
	}
	err := dec.Decode(&e)
	if _, more := dec.Token(); err != nil || more != io.EOF || e.CNIVersion == "" {
		t.Fatalf("standard output is not one CNI error with a cniVersion: %v\n%s", err, stdout)
	}
	text := fmt.Sprintf("code %d\nmsg %s\n", e.Code, e.Msg)
	if e.Details != "" {
		text += "details " + e.Details + "\n"
	}
	return clock.ReplaceAllString(text, "<time>")
}

var (
	clock   = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?(UTC|Z))?`)
	logTime = regexp.MustCompile(`(?m)^time=\S+ level=`)
)

// warnings removes the time from log lines.
func warnings(stderr string) string {
	return clock.ReplaceAllString(logTime.ReplaceAllString(stderr, ""), "<time>")
}

// readFiles reads the files below /run, except those of the test itself.
func readFiles(into map[string]string) error {
	return filepath.WalkDir("/run", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == binDir || path == filepath.Dir(podNetns) || path == stateDir && d.IsDir():
			return fs.SkipDir
		case d.IsDir() || path == nodeFile || path == hostFile || path == childrenLog:
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			into[path+" -> "+target] = section("")
			return err
		}
		data, err := os.ReadFile(path)
		text := string(data)
		if err == nil && filepath.Dir(path) == cdiDir {
			text, err = specText(path, text)
		}
		into[path] = section(text)
		return err
	})
}

// readJournal writes one line for each journal entry and for every other file in the state directory.
func readJournal(t *testing.T, into map[string]string) {
	if stat, err := os.Stat(stateDir); err != nil || !stat.IsDir() {
		return
	}
	var lines []string
	for _, path := range difftest.Files(t, stateDir) {
		if line := journalLine(t, path); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 {
		into["journal"] = strings.Join(lines, "\n") + "\n"
	}
}

// journalLine returns the line of one file, or "" for a link to an existing entry.
func journalLine(t *testing.T, path string) string {
	name := strings.TrimPrefix(path, stateDir+"/")
	if target, err := os.Readlink(path); err == nil {
		if _, err := os.Stat(path); err != nil {
			return name + " -> " + target + " (dangling)"
		}
		return ""
	}
	data := difftest.Read(t, path)
	var e journal.Entry
	if filepath.Dir(name) != "attachments" || json.Unmarshal([]byte(data), &e) != nil {
		return name
	}
	words := []string{e.Key.String() + ":"}
	for _, word := range []struct {
		on   bool
		text string
	}{
		{!e.Complete && e.Refused == "", "incomplete"},
		{e.Refused != "", "refused"},
		{e.File != "", "file=" + e.File},
		{e.Wrote, "wrote"},
		{e.InNetns, "in-netns"},
		{e.Inode != 0, "inode"},
		{e.Device.Type != "", e.Device.Type + "=" + e.Device.ID},
		{e.CDI.File != "", "cdi=" + e.CDI.Device},
		{len(e.Leases) > 0, "leases=" + leases(e.Leases)},
		{e.Reason != "", "reason=" + strconv.Quote(e.Reason)},
	} {
		if word.on {
			words = append(words, word.text)
		}
	}
	return strings.Join(words, " ")
}

// leases formats device leases.
func leases(of []journal.DeviceLease) string {
	var list []string
	for _, l := range of {
		if l.Mode == journal.Shared {
			l.ID += "(shared)"
		}
		list = append(list, l.ID)
	}
	return strings.Join(list, ",")
}

// changes adds sections for the files and the journal that the step has changed.
func (w *world) changes(got *sections) {
	before := w.state
	w.state = map[string]string{}
	check(w.t, readFiles(w.state))
	readJournal(w.t, w.state)
	for _, name := range slices.Sorted(maps.Keys(w.state)) {
		if before[name] != w.state[name] {
			got.add(name, w.state[name])
		}
		delete(before, name)
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		got.add(name, "(gone)\n")
	}
}

// remove removes path and everything below it, and forgets its recorded state.
func (w *world) remove(path string) {
	for unix.Unmount(path, unix.UMOUNT_NOFOLLOW) == nil {
	}
	check(w.t, os.RemoveAll(path))
	maps.DeleteFunc(w.state, func(name, _ string) bool {
		return name == path || strings.HasPrefix(name, path+" ") || strings.HasPrefix(name, path+"/")
	})
}

// specText formats a CDI spec that devinfo wrote: version and device, then one edit per line. It checks that
// the file contains nothing else and that the CDI library accepts it. Any other file is returned unchanged.
func specText(path, text string) (string, error) {
	if name := path[strings.LastIndexByte(path, '/')+1:]; !cdispec.IsDevinfoSpec([]byte(text), name) {
		return text, nil
	}
	spec, err := cdi.ReadSpec(path, 0)
	if err != nil {
		return "", err
	}
	if !bytes.Equal(cdispec.Encode(spec.Spec), []byte(text)) {
		return "", fmt.Errorf("%s has more than a spec:\n%s", path, text)
	}
	device := spec.Devices[0]
	lines := []string{"CDI " + spec.Version + " " + cdispec.Qualified(spec.Kind, device.Name)}
	for _, e := range device.ContainerEdits.Env {
		lines = append(lines, "env "+e)
	}
	for _, n := range device.ContainerEdits.DeviceNodes {
		lines = append(lines, fmt.Sprintf("node %s %s %d:%d %s", n.Path, n.Type, n.Major, n.Minor, n.Permissions))
	}
	for _, m := range device.ContainerEdits.Mounts {
		lines = append(lines, fmt.Sprintf("mount %s on %s (%s)", m.HostPath, m.ContainerPath, strings.Join(m.Options, ",")))
	}
	return strings.Join(lines, "\n") + "\n", nil
}
