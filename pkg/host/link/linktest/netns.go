package linktest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/difftest"
)

const current = "/proc/thread-self/ns/net"

// NewNetns creates a network namespace for the duration of the test, and returns its path. It contains only lo,
// which is down. Use it inside Run.
func NewNetns(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netns")
	difftest.Must(t, MakeNetns(path))
	t.Cleanup(func() { difftest.Must(t, unix.Unmount(path, unix.MNT_DETACH)) })
	return path
}

// MakeNetns creates a network namespace and mounts it on a new file at path.
func MakeNetns(path string) error {
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o444)); err != nil {
		return err
	}
	runtime.LockOSThread()
	here, err := os.Open(current)
	if err != nil {
		return err
	}
	defer here.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = unix.Mount(current, path, "", unix.MS_BIND, "")
	if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays locked and ends with the test
	}
	runtime.UnlockOSThread()
	return err
}

// InNetns calls f in the network namespace at path, or in the current one if path is "". It calls f in the caller's
// goroutine, so that f may end the test. Goroutines that f starts are not in the namespace.
func InNetns(path string, f func() error) (err error) {
	if path == "" {
		return f()
	}
	there, err := os.Open(path)
	if err != nil {
		return err
	}
	defer there.Close()
	runtime.LockOSThread()
	here, err := os.Open(current)
	if err == nil {
		defer here.Close()
		err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter %s: %w", path, err)
	}
	defer func() {
		if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
			err = errors.Join(err, back) // the thread stays locked and ends with the test
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// AddVeth creates a veth pair: name in the current network namespace, and peer in the one at netns. Both are up.
func AddVeth(t testing.TB, name, peer, netns string) {
	t.Helper()
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: peer}
	veth.Name = name
	inside := open(t, netns)
	veth.PeerNamespace = netlink.NsFd(inside.Fd())
	add(t, veth)
	up(t, name, "")
	up(t, peer, netns)
}

// AddMacvlan creates a macvlan in bridge mode on parent, which is in the current network namespace. name is in the
// one at netns, and up.
func AddMacvlan(t testing.TB, parent, name, netns string) {
	t.Helper()
	lower, err := netlink.LinkByName(parent)
	difftest.Must(t, err)
	macvlan := &netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_BRIDGE}
	macvlan.Name = name
	macvlan.ParentIndex = lower.Attrs().Index
	inside := open(t, netns)
	macvlan.Namespace = netlink.NsFd(inside.Fd())
	add(t, macvlan)
	up(t, name, netns)
}

func open(t testing.TB, netns string) *os.File {
	t.Helper()
	f, err := os.Open(netns)
	difftest.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func add(t testing.TB, l netlink.Link) {
	t.Helper()
	if err := netlink.LinkAdd(l); err != nil {
		t.Fatalf("add %s %s: %v", l.Type(), l.Attrs().Name, err)
	}
}

func up(t testing.TB, name, netns string) {
	t.Helper()
	err := InNetns(netns, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
	if err != nil {
		t.Fatalf("set %s up: %v", name, err)
	}
}
