package node

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

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

// A Snapshot contains everything that a program could leave: the files below /run and /var/lib by path, and interfaces by
// "<place> interface <name>".
type Snapshot map[string]Thing

// A Thing is a file, a directory, a symbolic link, or an interface. An interface has no mode.
type Thing struct {
	Mode fs.FileMode
	Text string // content, or target of a link
}

// A View is what snapshots of a node contain.
type View struct {
	Places  map[string]string // network namespaces by name; "" is the path of the test's own
	Without []string          // patterns of paths, besides the captured host and the namespaces: see filepath.Match
}

// Take returns a snapshot.
func (v View) Take(t testing.TB) Snapshot {
	t.Helper()
	s := Snapshot{}
	without := append([]string{Sys, "/run/netns"}, v.Without...)
	for _, root := range []string{"/run", "/var/lib"} {
		difftest.Must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			matches := func(pattern string) bool { is, _ := filepath.Match(pattern, path); return is }
			switch {
			case err != nil:
				return err
			case !slices.ContainsFunc(without, matches):
				return s.add(path, d)
			case d.IsDir():
				return filepath.SkipDir
			}
			return nil
		}))
	}
	for place, netns := range v.Places {
		difftest.Must(t, linktest.InNetns(netns, func() error {
			links, err := netlink.LinkList()
			for _, l := range links {
				s[place+" interface "+l.Attrs().Name] = Thing{}
			}
			return err
		}))
	}
	return s
}

func (s Snapshot) add(path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	what := Thing{Mode: info.Mode()}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		what.Text, err = os.Readlink(path)
	case info.Mode().IsRegular():
		var text []byte
		text, err = os.ReadFile(path)
		what.Text = string(text)
	}
	s[path] = what
	return err
}

// Beyond returns the things that did not exist before.
func (s Snapshot) Beyond(before Snapshot) Snapshot {
	more := maps.Clone(s)
	maps.DeleteFunc(more, func(name string, _ Thing) bool {
		_, there := before[name]
		return there
	})
	return more
}

// Left returns the things that must not exist any more.
func (s Snapshot) Left(now Snapshot) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(now.Beyond(s))) {
		problems = append(problems, "left: "+name)
	}
	return problems
}

// Restore brings the node back to a snapshot.
func (v View) Restore(t testing.TB, s, now Snapshot) {
	t.Helper()
	var errs []error
	for name := range now.Beyond(s) {
		errs = append(errs, v.Remove(name))
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		was := s[name]
		is, there := now[name]
		switch {
		case there && is == was:
		case !strings.HasPrefix(name, "/"):
			errs = append(errs, fmt.Errorf("%s is gone", name))
		case was.Mode.IsDir():
			errs = append(errs, os.MkdirAll(name, was.Mode.Perm()), os.Chmod(name, was.Mode.Perm()))
		case was.Mode.IsRegular():
			errs = append(errs, os.RemoveAll(name), os.WriteFile(name, []byte(was.Text), was.Mode.Perm()))
		default:
			errs = append(errs, os.RemoveAll(name), os.Symlink(was.Text, name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("the node is beyond repair: %v", err)
	}
}

// Remove removes a thing of a snapshot.
func (v View) Remove(name string) error {
	place, iface, ok := strings.Cut(name, " interface ")
	if !ok {
		return os.RemoveAll(name)
	}
	return linktest.InNetns(v.Places[place], func() error {
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
