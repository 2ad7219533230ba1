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
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

// A snapshot contains everything that a plugin could leave: the files below /run and /var/lib by path, and interfaces
// by "<pod or host> interface <name>".
type snapshot map[string]thing

// A thing is a file, a directory, a symbolic link, or an interface. An interface has no mode.
type thing struct {
	mode fs.FileMode
	text string // content, or target of a link
}

// places are the network namespaces of a world; "" is the host's.
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

// add adds a path. It ignores the captured host, the namespaces, and the lock and the last address of host-local.
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

// trampled returns the changes of things that must not change.
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

// beyond returns the things that did not exist before.
func (s snapshot) beyond(before snapshot) snapshot {
	more := maps.Clone(s)
	maps.DeleteFunc(more, func(name string, _ thing) bool {
		_, there := before[name]
		return there
	})
	return more
}

// left returns the things that must not exist any more.
func (s snapshot) left(now snapshot) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(now.beyond(s))) {
		problems = append(problems, "left: "+name)
	}
	return problems
}

// visible returns the files that other programs read: device-info files and CDI specs.
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

// torn returns the visible files that are incomplete.
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

// restore restores the snapshot.
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
			return nil // it was the other end of a veth that no longer exists
		}
		return err
	})
}
