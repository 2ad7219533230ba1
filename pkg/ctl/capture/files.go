package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/hosttxt"
)

// files are the host's files that the plugin, or one beside it, has written.
type files struct {
	root    string // where the host's / is
	scrub   *scrubber
	notes   []string
	entries []txtar.File
	netns   []string // of the attachments
	seen    map[string]bool
}

// A reader returns what is captured of a file.
type reader func(name string, data []byte) []byte

// capture captures the journal, the device-info files of CNI and of device plugins, the CDI specs
// of attachments, and the records of cni-dra-driver.
func (f *files) capture(claimDir string, s config.Node) {
	all := func(string) bool { return true }
	f.dir(filepath.Join(s.StateDir, "attachments"), all, recorded(f, f.entry))
	f.dir(filepath.Join(s.StateDir, "claims"), all, recorded(f, f.held))
	f.tree(filepath.Join(s.StateDir, "leases"))
	f.dir(s.DeviceInfoDir, all, nil)
	f.dir(s.DevicePluginDir, all, nil)
	f.dir(s.CDIDir, ours, nil)
	isOffer := func(name string) bool { return filepath.Base(name) == state.OfferFile }
	claim, offer := recorded(f, f.claim), recorded(f, func(*state.Offer) {})
	f.dir(claimDir, func(name string) bool { return strings.HasSuffix(name, ".json") || isOffer(name) }, func(name string, data []byte) []byte {
		if isOffer(name) {
			return offer(name, data)
		}
		return claim(name, data)
	})
	slices.Sort(f.netns)
	f.netns = slices.Compact(f.netns)
	slices.SortFunc(f.entries, byName)
}

func byName(a, b txtar.File) int { return strings.Compare(a.Name, b.Name) }

// ours reports by its name whether a CDI spec is of our default kind. One of another kind
// is known by its journal entry.
func ours(name string) bool { return strings.HasPrefix(name, "devinfo-cni.io") }

// dir takes the wanted files and links of a directory, without those whose name
// begins with a dot: they are being written.
func (f *files) dir(dir string, wanted func(string) bool, read reader) {
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
			f.file(filepath.Join(dir, e.Name()), read)
		}
	}
}

// tree takes all links below a directory.
func (f *files) tree(dir string) {
	err := fs.WalkDir(os.DirFS(f.at(dir)), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type() == fs.ModeSymlink {
			f.file(filepath.Join(dir, path), nil)
		}
		return err
	})
	if err != nil {
		f.missing(dir, err)
	}
}

// at is where a file of the host is to be read.
func (f *files) at(name string) string {
	return filepath.Join("/", f.root, filepath.Clean("/"+name))
}

// limit is the size, in bytes, of the largest file that is taken.
const limit = 4 << 20

// file takes one file or link, the file as read returns it; the plugin makes nothing else.
func (f *files) file(name string, read reader) {
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
		f.note("%s: it has %d bytes", name, stat.Size())
		return
	default:
		if e.Data, err = os.ReadFile(at); err == nil && read != nil {
			e.Data = read(name, e.Data)
		}
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
	f.note("%s: %v", name, err)
}

func (f *files) note(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// inArchive is a path of the host as the archive has it.
func inArchive(path string) string { return "root" + filepath.Clean("/"+path) }
