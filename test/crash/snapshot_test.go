package crash_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/link/linktest"
)

// A snapshot is all that a plugin could leave: the files of /run and /var/lib by their
// paths, and the interfaces by "<pod or host> interface <name>".
type snapshot map[string]thing

// A thing is a file, a directory, a symbolic link, or an interface, which has no mode.
type thing struct {
	mode fs.FileMode
	text string // a link's target
}

// places are the network namespaces of a world; "" is its own.
var places = map[string]string{"host": "", "pod": podNetns, "other pod": otherNetns}

func take(t *testing.T) snapshot {
	t.Helper()
	s := snapshot{}
	difftest.Must(t, filepath.WalkDir("/run", s.add), filepath.WalkDir("/var/lib", s.add))
	for where, netns := range places {
		difftest.Must(t, linktest.InNetns(netns, func() error {
			links, err := netlink.LinkList()
			for _, l := range links {
				s[where+" interface "+l.Attrs().Name] = thing{}
			}
			return err
		}))
	}
	return s
}

// add takes one path in. The captured host and the namespaces are not the plugin's,
// and host-local keeps a lock and the address that it gave out last.
func (s snapshot) add(path string, d fs.DirEntry, err error) error {
	switch {
	case err != nil:
		return err
	case path == "/run/sys" || path == filepath.Dir(podNetns):
		return filepath.SkipDir
	case strings.HasPrefix(path, ipamDir) && (d.Name() == "lock" || strings.HasPrefix(d.Name(), "last_reserved_ip")):
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	what := thing{mode: info.Mode()}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		what.text, err = os.Readlink(path)
	case info.Mode().IsRegular():
		var text []byte
		text, err = os.ReadFile(path)
		what.text = string(text)
	}
	s[path] = what
	return err
}

// trampled says what has changed of the things that must never.
func (s snapshot) trampled(now snapshot) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		was := s[name]
		switch is, there := now[name]; {
		case !there && !was.mode.IsDir():
			problems = append(problems, "of another attachment, gone: "+name)
		case there && is != was:
			problems = append(problems, "of another attachment, changed: "+name)
		}
	}
	return problems
}

// beyond is what was not there before.
func (s snapshot) beyond(before snapshot) snapshot {
	more := maps.Clone(s)
	maps.DeleteFunc(more, func(name string, _ thing) bool {
		_, there := before[name]
		return there
	})
	return more
}

// left says what should not be there.
func (s snapshot) left(now snapshot) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(now.beyond(s))) {
		problems = append(problems, "left: "+name)
	}
	return problems
}

// visible are the device-info files and the CDI specs: what others read.
func (s snapshot) visible() snapshot {
	files := maps.Clone(s)
	maps.DeleteFunc(files, func(path string, f thing) bool {
		hidden := strings.HasPrefix(filepath.Base(path), ".")
		info := filepath.Dir(path) == infoDir
		spec := filepath.Dir(path) == cdiDir && (filepath.Ext(path) == ".json" || filepath.Ext(path) == ".yaml")
		return hidden || !f.mode.IsRegular() || !info && !spec
	})
	return files
}

// torn says which visible files are not whole.
func (s snapshot) torn() (problems []string) {
	files := s.visible()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		var err error
		if filepath.Dir(path) == cdiDir {
			_, err = cdi.ReadSpec(path, 0)
		} else if info, e := devinfo.Parse([]byte(files[path].text)); e != nil {
			err = e
		} else {
			err = info.Validate().Err()
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("torn: %s: %v", path, err))
		}
	}
	return problems
}

// restore makes everything as it was, by force.
func (s snapshot) restore(t *testing.T, now snapshot) {
	t.Helper()
	var errs []error
	for name := range now.beyond(s) {
		errs = append(errs, remove(name))
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		was := s[name]
		is, there := now[name]
		switch {
		case there && is == was:
		case !strings.HasPrefix(name, "/"):
			errs = append(errs, fmt.Errorf("%s is gone", name))
		case was.mode.IsDir():
			errs = append(errs, os.MkdirAll(name, was.mode.Perm()), os.Chmod(name, was.mode.Perm()))
		case was.mode.IsRegular():
			errs = append(errs, os.RemoveAll(name), os.WriteFile(name, []byte(was.text), was.mode.Perm()))
		default:
			errs = append(errs, os.RemoveAll(name), os.Symlink(was.text, name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("the world is beyond repair: %v", err)
	}
}

// remove removes a thing of a snapshot.
func remove(name string) error {
	where, iface, ok := strings.Cut(name, " interface ")
	if !ok {
		return os.RemoveAll(name)
	}
	return linktest.InNetns(places[where], func() error {
		link, err := netlink.LinkByName(iface)
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) {
			return nil // the other end of a veth that went with this one
		}
		return err
	})
}
