//go:build vm

package vm_test

import (
	"fmt"
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

// A pod stacks each kind of interface that the kernel takes on its VF, and leaves it in a namespace that lives longer. A
// reset ends all of them, whatever keeps the namespace, and the next pod has its frames.
func TestResetEndsWhatPodStacked(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	for _, test := range []struct {
		address, ifName, pf string
		vf                  int
	}{
		{"0000:41:10.0", "enp65s0v0", "enp65s0", 0},
	} {
		t.Run(test.address, func(t *testing.T) {
			node, was, undo := kept(t, test.address, test.ifName, test.pf, test.vf)
			of := was
			of.Reset = restore.Auto
			var survived, done []string
			for _, shape := range stacktest.Shapes() {
				if slices.Contains(done, shape.Kind) { // a reset takes a second here
					continue
				}
				pod, spies := netnsFile(t), netnsFile(t)
				if !podStacks(t, shape, test.ifName, pod, spies) {
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
				l, err := netlink.LinkByName(test.ifName)
				must(t, err)
				if r, err := stack.Receives(l.Attrs().Index); err != nil || r != (stack.Receivers{}) {
					t.Errorf("%s: %+v, %v", shape.Kind, r, err)
				}
			}
			if !slices.Contains(survived, "macvlan") {
				t.Error("no macvlan survived the move, so nothing was tested")
			}
			t.Logf("these survived the move to the host: %q", slices.Compact(survived))
			if test.pf == "enp65s0" { // QEMU's virtio has no switch between PF and VFs
				nextPodReceives(t, test.pf, test.ifName)
				undo()
			}
		})
	}
}

// nextPodReceives moves a VF to a pod, which must receive all broadcasts of the PF once its link is up.
func nextPodReceives(t *testing.T, pf, ifName string) {
	t.Helper()
	netns := pod(t, "next")
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
