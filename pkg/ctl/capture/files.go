package capture

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/store"
)

// files captures the files of the plugin, the agents and the device plugins on the host.
type files struct {
	root    string // root directory of the host
	scrub   *scrubber
	notes   []string
	entries []txtar.File
	netns   map[string]bool // paths of the network namespaces of the attachments
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
	delete(f.netns, "") // of attachments without one
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

// file captures a link, or the part of a file that read returns. It leaves out other types of files, which the plugin
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
	case stat.Size() > 4<<20: // bytes
		f.note("%s is left out, because it has %d bytes", name, stat.Size())
		return
	default:
		dir := store.Private(filepath.Dir(at)) // it neither waits for a pipe nor follows a link that has replaced the file since
		if e.Data, err = dir.Read(filepath.Base(at)); err == nil && read != nil {
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
	if cause, is := errors.AsType[syscall.Errno](err); is {
		err = cause
	}
	f.note("%s: %v", name, err)
}

func (f *files) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(f.notes, n) {
		f.notes = append(f.notes, n)
	}
}

// recorded returns a reader of records of type T. The reader clears the fields that no command reads, because they
// may contain keys of delegates and a capture is attached to bug reports. It leaves out the whole content of a
// corrupt record for the same reason.
func recorded[T any](f *files, empty func(*T)) reader {
	return func(name string, data []byte) []byte {
		record := new(T)
		if err := json.Unmarshal(data, record); err != nil && !newer(data) {
			f.note("%s: the record is corrupt, its content is left out", name)
			return []byte("corrupt\n")
		}
		empty(record)
		return append(line(record), '\n')
	}
}

// newer reports whether a record has a newer format. Types of its fields may then differ from the types in this
// build.
func newer(data []byte) bool {
	var is struct{ Format, Schema int }
	_ = json.Unmarshal(data, &is) // other fields do not matter
	return json.Valid(data) && (is.Format > journal.Format || is.Schema > state.Schema)
}

// entry clears unread fields of a journal entry. It captures the files and the network namespace that the entry
// names.
func (f *files) entry(e *journal.Entry) {
	f.netns[e.Netns] = true
	if e.Dir != "" && e.File != "" {
		f.file(e.Path(), nil)
	}
	if e.CDI.Dir != "" && e.CDI.File != "" {
		f.file(filepath.Join(e.CDI.Dir, e.CDI.File), nil)
	}
	for n, kind := range check.Delegates(e) {
		e.Delegates[n] = line(map[string]string{"type": kind})
	}
	e.CNIVersion, e.CapabilityArgs, e.PrevResult, e.Result, e.Original = "", nil, nil, nil, nil
	args, _ := pod.ParseArgs(e.Args)
	var pairs []string
	for _, pair := range f.args(args, e.Device.ID, e.SocketDir, e.Requested.SocketPath) {
		pairs = append(pairs, pair[0]+"="+pair[1])
	}
	e.Args = strings.Join(pairs, ";")
}

// held renames the names in the journal's record of a claim and clears its files.
func (f *files) held(c *journal.Claim) {
	c.Files = nil
	c.Namespace, c.Name = f.scrub.word(c.Namespace, "namespace"), f.scrub.word(c.Name, "claim")
	for n := range c.Pods {
		c.Pods[n] = f.scrub.word(c.Pods[n], "uid")
	}
}

// claim clears unread fields of cni-dra-driver's record of a claim. It captures the network namespaces that the
// record names.
func (f *files) claim(c *state.Claim) {
	c.Namespace, c.Name = f.scrub.word(c.Namespace, "namespace"), f.scrub.word(c.Name, "claim")
	c.Pod.Namespace, c.Pod.Name = f.scrub.word(c.Pod.Namespace, "namespace"), f.scrub.word(c.Pod.Name, "pod")
	c.Pod.UID, c.PodClaim, c.Parameters = f.scrub.word(c.Pod.UID, "uid"), "", ""
	for n := range c.Attachments {
		f.attachment(&c.Attachments[n])
	}
	for n := range c.Undeleted {
		f.attachment(&c.Undeleted[n])
	}
}

func (f *files) attachment(at *state.Attachment) {
	f.netns[at.Netns] = true
	if !at.Bare() {
		at.List = json.RawMessage("{}")
	}
	if at.NodeDevice != nil {
		at.NodeDevice.Published = line(map[string]bool{"allowMultipleAllocations": at.NodeDevice.Shared()})
	}
	at.Args = f.args(at.Args)
	at.Capabilities, at.Note, at.Result, at.Metadata = nil, nil, nil, nil
}

// args keeps the CNI arguments that name the pod and the claim. It renames the names, also in the paths of the
// sockets.
func (f *files) args(all [][2]string, sockets ...string) (kept [][2]string) {
	sorts := map[string]string{"K8S_POD_NAMESPACE": "namespace", "K8S_POD_NAME": "pod", "K8S_POD_UID": "uid", pod.ClaimArg: "claim"}
	for _, arg := range all {
		if sort, ok := sorts[arg[0]]; ok {
			kept = append(kept, [2]string{arg[0], f.scrub.word(arg[1], sort)})
			for _, path := range sockets {
				f.scrub.socket(path, arg[1])
			}
		}
	}
	return kept
}
