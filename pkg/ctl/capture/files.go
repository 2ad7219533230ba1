package capture

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/journal"
)

// files are the host's files that the plugin, or one beside it, has written.
type files struct {
	host    Source
	notes   func(format string, args ...any)
	entries []txtar.File
	netns   []string // of the attachments
	seen    map[string]bool
}

// files takes the journal, the device-info files of CNI and of device plugins, and
// the CDI specs of attachments.
func (a *Archive) files(h Source) *files {
	f := &files{host: h, notes: a.note, seen: map[string]bool{}}
	s := h.State.Settings
	any := func(string) bool { return true }
	attachments := filepath.Join(s.StateDir, "attachments")
	f.dir(attachments, any)
	f.dir(filepath.Join(s.StateDir, "claims"), any)
	f.tree(filepath.Join(s.StateDir, "leases"))
	f.dir(s.DeviceInfoDir, any)
	f.dir(s.DevicePluginDir, any)
	f.dir(s.CDIDir, ours)
	f.dir(h.State.ClaimDir, func(name string) bool { return strings.HasSuffix(name, ".json") || name == state.OfferFile })
	for _, e := range slices.Clone(f.entries) {
		switch filepath.Dir(e.Name) {
		case inArchive(attachments):
			f.attachment(e.Data)
		case inArchive(h.State.ClaimDir):
			f.claim(e.Data)
		}
	}
	slices.Sort(f.netns)
	f.netns = slices.Compact(f.netns)
	slices.SortFunc(f.entries, byName)
	return f
}

func byName(a, b txtar.File) int { return strings.Compare(a.Name, b.Name) }

// ours reports by its name whether a CDI spec is of our default kind. One of another kind
// is known by its journal entry.
func ours(name string) bool { return strings.HasPrefix(name, "devinfo-cni.io") }

// attachment takes what a journal entry names in other places than the settings do.
func (f *files) attachment(data []byte) {
	var e journal.Entry
	if json.Unmarshal(data, &e) != nil {
		return
	}
	if e.Netns != "" {
		f.netns = append(f.netns, e.Netns)
	}
	if e.Dir != "" && e.File != "" {
		f.file(e.Path())
	}
	if e.CDI.Dir != "" && e.CDI.File != "" {
		f.file(filepath.Join(e.CDI.Dir, e.CDI.File))
	}
}

// claim takes the network namespaces of a claim's record.
func (f *files) claim(data []byte) {
	var c struct {
		Attachments []struct{ Netns string }
	}
	if json.Unmarshal(data, &c) != nil {
		return
	}
	for _, a := range c.Attachments {
		if a.Netns != "" {
			f.netns = append(f.netns, a.Netns)
		}
	}
}

// dir takes the wanted files and links of a directory, without those whose name
// begins with a dot: they are being written.
func (f *files) dir(dir string, wanted func(string) bool) {
	if dir == "" {
		return
	}
	entries, err := os.ReadDir(f.at(dir))
	if err != nil {
		f.missing(dir, err)
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && wanted(e.Name()) {
			f.file(filepath.Join(dir, e.Name()))
		}
	}
}

// tree takes all links below a directory.
func (f *files) tree(dir string) {
	err := fs.WalkDir(os.DirFS(f.at(dir)), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type() == fs.ModeSymlink {
			f.file(filepath.Join(dir, path))
		}
		return err
	})
	if err != nil {
		f.missing(dir, err)
	}
}

// at is where a file of the host is to be read.
func (f *files) at(name string) string {
	return filepath.Join("/", f.host.Root, filepath.Clean("/"+name))
}

// limit is the size, in bytes, of the largest file that is taken.
const limit = 4 << 20

// file takes one file or link; the plugin makes nothing else.
func (f *files) file(name string) {
	at := f.at(name)
	stat, err := os.Lstat(at)
	if err != nil {
		f.missing(name, err)
		return
	}
	if f.seen[name] {
		return
	}
	f.seen[name] = true
	e := txtar.File{Name: inArchive(name)}
	switch {
	case stat.Mode().Type() == fs.ModeSymlink:
		var target string
		target, err = os.Readlink(at)
		e.Name += toTarget + target
	case !stat.Mode().IsRegular():
		return
	case stat.Size() > limit:
		f.notes("%s: it has %d bytes", name, stat.Size())
		return
	default:
		e.Data, err = os.ReadFile(at)
	}
	if err == nil {
		_, err = hosttxt.Parse(txtar.Format(&txtar.Archive{Comment: []byte("-: -\n"), Files: []txtar.File{{Name: e.Name}}}))
		err = cmp.Or(errors.Unwrap(err), err)
	}
	if err != nil {
		f.missing(name, err)
		return
	}
	f.entries = append(f.entries, e)
}

// missing notes what we lack permission to read, or an archive cannot hold. What does not exist
// is not missing.
func (f *files) missing(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	f.notes("%s: %v", name, err)
}

// inArchive is a path of the host as the archive has it.
func inArchive(path string) string { return "root" + filepath.Clean("/"+path) }
