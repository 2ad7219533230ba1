//go:build vm

package vm_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/stack"
	"devinfo-cni.io/pkg/host/stack/stacktest"
)

// netnsFile is a network namespace that only a descriptor keeps.
func netnsFile(t *testing.T) *os.File {
	t.Helper()
	path := t.TempDir() + "/netns"
	must(t, linktest.MakeNetns(path))
	f, err := os.Open(path)
	must(t, err)
	must(t, unix.Unmount(path, unix.MNT_DETACH))
	t.Cleanup(func() { f.Close() })
	return f
}

// in calls f in a network namespace.
func in(t *testing.T, netns *os.File, f func() error) {
	t.Helper()
	must(t, linktest.InNetns(fmt.Sprint("/proc/self/fd/", netns.Fd()), f))
}

// vf is a VF that the driver resets.
type vf struct {
	address, ifName, pf string
	number              int
}

// onVFs runs a test on a VF of igb and on one of virtio, and puts both back.
func onVFs(t *testing.T, test func(t *testing.T, vf vf)) {
	needs(t, "igb", "vpvdpa")
	t.Cleanup(func() { vfsBack(t) })
	for _, vf := range []vf{{"0000:41:10.0", "enp65s0v0", "enp65s0", 0}, {"0000:02:00.2", "enp2s0v1", "enp2s0", 1}} {
		t.Run(vf.address, func(t *testing.T) { test(t, vf) })
	}
}

// taken returns the shapes that the kernel takes on a veth. Trying the others on a VF would take minutes.
func taken(t *testing.T) (list []stacktest.Shape) {
	in(t, netnsFile(t), func() error {
		lower := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lower"}, PeerName: "peer"}
		must(t, netlink.LinkAdd(lower))
		for _, shape := range stacktest.Shapes() {
			if shape.Put(lower) {
				list = append(list, shape)
			}
			if spy, err := netlink.LinkByName("spy"); err == nil {
				must(t, netlink.LinkDel(spy))
			}
		}
		return nil
	})
	return list
}

// A pod stacks each kind of interface that the kernel takes on its VF, and leaves it in a namespace that lives longer. A
// reset ends all of them, whatever keeps the namespace, and the next pod has its frames.
func TestResetEndsWhatPodStacked(t *testing.T) {
	onVFs(t, func(t *testing.T, vf vf) {
		node, was, undo, _ := kept(t, vf.address, vf.ifName, vf.pf, vf.number)
		of := was
		of.Reset = restore.Auto
		var survived, done []string
		for _, shape := range taken(t) {
			if slices.Contains(done, shape.Kind) { // a reset takes a second here
				continue
			}
			pod, spies := netnsFile(t), netnsFile(t)
			if !podStacks(t, shape, vf.ifName, pod, spies) {
				_, err := node.Restore(was)
				must(t, err)
				continue
			}
			done = append(done, shape.Kind)
			spied := false
			in(t, spies, func() error {
				_, err := netlink.LinkByName("spy")
				spied = err == nil
				return nil
			})
			if spied {
				survived = append(survived, shape.Kind)
			}
			began := time.Now()
			did, err := node.Restore(of)
			if !slices.Contains(did, restore.Reset) {
				t.Fatalf("%s: did %q, %v", shape.Kind, did, err)
			}
			t.Logf("%s: reset in %v: %q, %v", shape.Kind, time.Since(began).Round(time.Millisecond), did, err)
			in(t, spies, func() error {
				if l, err := netlink.LinkByName("spy"); err == nil && spied {
					t.Errorf("%s: it is still there, on %d", shape.Kind, l.Attrs().ParentIndex)
				}
				return nil
			})
			undo()
			l, err := netlink.LinkByName(vf.ifName)
			must(t, err)
			if r, err := stack.Receives(l.Attrs().Index); err != nil || r != (stack.Receivers{}) {
				t.Errorf("%s: %+v, %v", shape.Kind, r, err)
			}
		}
		if !slices.Contains(survived, "macvlan") {
			t.Error("no macvlan survived the move, so nothing was tested")
		}
		t.Logf("these survived the move to the host: %q", slices.Compact(survived))
		nextPodReceives(t, vf.pf, vf.ifName)
		undo()
	})
}

// udev and NetworkManager rename the new interface of a reset, set it up, give it an altname and hold it open, at any moment.
// What nobody can set, as shown by a setting that no kernel has, ends with the former interface.
func TestResetCopesWithOthers(t *testing.T) {
	onVFs(t, func(t *testing.T, vf vf) {
		node, was, undo, _ := kept(t, vf.address, vf.ifName, vf.pf, vf.number)
		of := was
		of.Reset, of.Settings = restore.Auto, maps.Clone(was.Settings)
		of.Settings["rtnetlink-9999"] = "07"
		for range 5 {
			meddled := meddles(t)
			did, err := node.Restore(of)
			t.Logf("did %q, %v", did, err)
			if !slices.Contains(did, restore.Reset) || err == nil {
				t.Errorf("did %q: %v", did, err)
			}
			meddled()
			undo()
		}
	})
}

// meddles changes each interface that the kernel makes. The function that it returns ends that, and fails if there was none.
func meddles(t *testing.T) (end func()) {
	t.Helper()
	links, stop, first, done := make(chan netlink.LinkUpdate, 64), make(chan struct{}), make(chan struct{}), make(chan struct{})
	must(t, netlink.LinkSubscribe(links, stop))
	before, err := netlink.LinkList()
	must(t, err)
	var open []int
	go func() {
		defer close(done)
		for l := range links {
			known := func(b netlink.Link) bool { return b.Attrs().Index == l.Attrs().Index }
			if slices.ContainsFunc(before, known) || l.Header.Type != unix.RTM_NEWLINK {
				continue
			}
			before = append(before, l.Link)
			renamed := netlink.LinkSetName(l.Link, "udev0") // each call may come too late or too early
			up := netlink.LinkSetUp(l.Link)
			named := netlink.LinkAddAltName(l.Link, "enx0123456789ab")
			if fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(0x0300)); err == nil {
				open = append(open, fd)
				_ = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: l.Attrs().Index})
			}
			t.Logf("%s of index %d: renamed %v, up %v, altname %v", l.Attrs().Name, l.Attrs().Index, renamed, up, named)
			if len(open) == 1 {
				close(first)
			}
		}
	}()
	return func() {
		t.Helper()
		<-first
		close(stop)
		<-done
		for _, fd := range open {
			unix.Close(fd)
		}
	}
}

// nextPodReceives moves a VF to a pod, which must receive all broadcasts of the PF once its link is up.
func nextPodReceives(t *testing.T, pf, ifName string) {
	t.Helper()
	netns := pod(t, "next")
	run(t, "ip", "link", "set", pf, "up") // virtio's is down
	run(t, "ip", "link", "set", ifName, "netns", filepath.Base(netns))
	run(t, "ip", "-n", filepath.Base(netns), "link", "set", ifName, "up")
	eventually(t, "the next pod receives 10 of 10 frames", func() bool {
		received := stacktest.Listen(t, netns, ifName)
		stacktest.Send(t, "", pf, false)
		time.Sleep(500 * time.Millisecond)
		n := received()
		t.Log("received", n)
		return n == 10
	})
	run(t, "ip", "-n", filepath.Base(netns), "link", "set", ifName, "netns", "1")
}

// podStacks moves an interface to a pod, which stacks another one on it and moves that to the namespace spies. It then
// moves the interface back. It reports whether the kernel accepted the shape.
func podStacks(t *testing.T, shape stacktest.Shape, ifName string, pod, spies *os.File) (put bool) {
	t.Helper()
	host, err := os.Open("/proc/thread-self/ns/net")
	must(t, err)
	defer host.Close()
	l, err := netlink.LinkByName(ifName)
	must(t, err)
	must(t, netlink.LinkSetNsFd(l, int(pod.Fd())))
	in(t, pod, func() error {
		l, err := netlink.LinkByName(ifName)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
		if put = shape.Put(l); put {
			spy, err := netlink.LinkByName("spy")
			must(t, err)
			_ = netlink.LinkSetNsFd(spy, int(spies.Fd())) // a bridge stays
		}
		return netlink.LinkSetNsFd(l, int(host.Fd()))
	})
	return put
}
