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

	"devinfo-cni.io/pkg/capturefile"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/dra/state"
)

// files captures the files of the plugin, the agents and the device plugins on the host.
type files struct {
	root    string // root directory of the host
	scrub   *scrubber
	notes   []string
	entries []txtar.File
	netns   []string // network namespaces of the attachments
	seen    map[string]bool
}

// A reader returns the part of a file's content that a capture contains.
type reader func(name string, data []byte) []byte

// capture captures the journal, the device-info files of CNI and of device plugins, the CDI specs
// of attachments, and the records of cni-dra-driver.
func (f *files) capture(claimDir string, s config.Node) {
	f.dir(filepath.Join(s.StateDir, "attachments"), "*", recorded(f, f.entry))
	f.dir(filepath.Join(s.StateDir, "claims"), "*", recorded(f, f.held))
	f.tree(filepath.Join(s.StateDir, "leases"))
	f.dir(s.DeviceInfoDir, "*", nil)
	f.dir(s.DevicePluginDir, "*", nil)
	f.dir(s.CDIDir, "devinfo-cni.io*", nil) // specs of the default kind; journal entries name specs of other kinds
	f.dir(claimDir, "*.json", recorded(f, f.claim))
	f.dir(claimDir, state.OfferFile, recorded(f, func(*state.Offer) {}))
	slices.Sort(f.netns)
	f.netns = slices.Compact(f.netns)
	slices.SortFunc(f.entries, byName)
}

func byName(a, b txtar.File) int { return strings.Compare(a.Name, b.Name) }

// dir captures the files and links of a directory whose names match a pattern. It skips names that begin with a dot,
// because these files are still being written.
func (f *files) dir(dir, pattern string, read reader) {
	if dir == "" {
		return
	}
	entries, err := os.ReadDir(f.at(dir))
	if err != nil {
		f.missing(dir, err)
		return
	}
	for _, e := range entries {
		if wanted, _ := filepath.Match(pattern, e.Name()); wanted && !strings.HasPrefix(e.Name(), ".") {
			f.file(filepath.Join(dir, e.Name()), read)
		}
	}
}

// tree captures all links below a directory.
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

// at returns the path of a host's file on this machine.
func (f *files) at(name string) string {
	return filepath.Join("/", f.root, filepath.Clean("/"+name))
}

// limit is the size of the largest captured file in bytes.
const limit = 4 << 20

// file captures a link, or the part of a file that read returns. It notes other types of files, which the plugin
// never creates.
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
	e := txtar.File{Name: "root" + filepath.Clean("/"+name)}
	switch {
	case stat.Mode().Type() == fs.ModeSymlink:
		var target string
		target, err = os.Readlink(at)
		e.Name += toTarget + target
	case !stat.Mode().IsRegular():
		return
	case stat.Size() > limit:
		f.note("%s is left out, because it has %d bytes", name, stat.Size())
		return
	default:
		if e.Data, err = os.ReadFile(at); err == nil && read != nil {
			e.Data = read(name, e.Data)
		}
	}
	if err == nil {
		_, err = capturefile.Parse(txtar.Format(&txtar.Archive{Comment: []byte("-: -\n"), Files: []txtar.File{{Name: e.Name}}}))
		err = cmp.Or(errors.Unwrap(err), err)
	}
	if err != nil {
		f.missing(name, err)
		return
	}
	f.entries = append(f.entries, e)
}

// missing notes a file that cannot be read or stored. It ignores a file that does not exist.
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
	if n := fmt.Sprintf(format, args...); !slices.Contains(f.notes, n) {
		f.notes = append(f.notes, n)
	}
}
