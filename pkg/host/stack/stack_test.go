package stack_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/pkg/host/stack"
	"devinfo-cni.io/pkg/host/stack/stacktest"
	"devinfo-cni.io/test/difftest"
)

// A keeper keeps a network namespace whose only name is path, and returns a function that ends this.
type keeper struct {
	name  string
	named bool // other programs can name the namespace
	keep  func(t *testing.T, netns string) (end func())
}

func keepers() []keeper {
	return []keeper{
		{"a mount", true, func(*testing.T, string) func() { return func() {} }},
		{"a descriptor", true, func(t *testing.T, netns string) func() {
			f, err := os.Open(netns)
			difftest.Must(t, err, unix.Unmount(netns, unix.MNT_DETACH))
			return func() { f.Close() }
		}},
		{"a thread", true, func(t *testing.T, netns string) func() {
			entered, ends := make(chan error), make(chan bool)
			go func() {
				runtime.LockOSThread() // and the thread ends
				f, err := os.Open(netns)
				if err == nil {
					err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
					f.Close()
				}
				entered <- err
				<-ends
			}()
			difftest.Must(t, <-entered, unix.Unmount(netns, unix.MNT_DETACH))
			return func() { close(ends) }
		}},
		{"a descriptor in a queue", false, func(t *testing.T, netns string) func() {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
			difftest.Must(t, err)
			f, err := os.Open(netns)
			difftest.Must(t, err, unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(int(f.Fd())), nil, 0), f.Close(), unix.Unmount(netns, unix.MNT_DETACH))
			return func() { unix.Close(pair[0]); unix.Close(pair[1]) }
		}},
		{"a socket", false, func(t *testing.T, netns string) func() {
			fd := -1
			difftest.Must(t, linktest.InNetns(netns, func() (err error) {
				fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
				return err
			}), unix.Unmount(netns, unix.MNT_DETACH))
			return func() { unix.Close(fd) }
		}},
	}
}

// makeNetns creates a network namespace that the test's clean-up may find unmounted.
func makeNetns(t *testing.T) string {
	path := t.TempDir() + "/netns"
	difftest.Must(t, linktest.MakeNetns(path))
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return path
}

func move(t *testing.T, l netlink.Link, netns string) {
	t.Helper()
	f, err := os.Open(netns)
	difftest.Must(t, err)
	defer f.Close()
	difftest.Must(t, netlink.LinkSetNsFd(l, int(f.Fd())))
}

// A pod stacks each kind of interface on its own and leaves it in a namespace that lives longer. After its removal the
// next pod receives all frames, and the interface that was left receives none. What cannot be removed is reported.
func TestNextPodAloneHasFrames(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		here, err := os.Open("/proc/thread-self/ns/net")
		difftest.Must(t, err)
		defer here.Close()
		host, refused := fmt.Sprintf("/proc/self/fd/%d", here.Fd()), []string(nil)
		survived := map[string]bool{}
		for _, s := range stacktest.Shapes() {
			if !accepted(t, s) {
				refused = append(refused, s.Kind)
				continue
			}
			for _, k := range keepers() {
				pod, next, wire, spies := makeNetns(t), makeNetns(t), makeNetns(t), makeNetns(t)
				linktest.AddVeth(t, "nic", "peer", wire)
				nic, err := netlink.LinkByName("nic")
				difftest.Must(t, err)
				move(t, nic, pod)
				away := false
				difftest.Must(t, linktest.InNetns(pod, func() error {
					nic, err = netlink.LinkByName("nic")
					difftest.Must(t, err, netlink.LinkSetUp(nic))
					s.Put(nic)
					spy, err := netlink.LinkByName("spy")
					difftest.Must(t, err)
					f, err := os.Open(spies)
					difftest.Must(t, err)
					defer f.Close()
					away = netlink.LinkSetNsFd(spy, int(f.Fd())) == nil
					move(t, nic, host)
					return nil
				}))
				in := pod
				if away {
					in = spies
					_ = linktest.InNetns(in, func() error { return netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "spy"}}) })
				}
				check(t, s, k, in, next, wire, survived)
			}
		}
		t.Logf("the kernel has no %q; these stay on an interface that moves: %v", slices.Compact(refused), survived)
		if !survived["macvlan"] {
			t.Error("no macvlan stayed on its interface, so nothing was tested")
		}
	})
}

// accepted reports whether the kernel accepts a shape.
func accepted(t *testing.T, s stacktest.Shape) (ok bool) {
	t.Helper()
	linktest.AddVeth(t, "nic", "peer", "/proc/thread-self/ns/net")
	nic, err := netlink.LinkByName("nic")
	difftest.Must(t, err)
	ok = s.Put(nic)
	if spy, err := netlink.LinkByName("spy"); err == nil {
		difftest.Must(t, netlink.LinkDel(spy))
	}
	difftest.Must(t, netlink.LinkDel(nic))
	return ok
}

// check hides the interface spy with a keeper, removes it, and gives nic to the next pod.
func check(t *testing.T, s stacktest.Shape, k keeper, in, next, wire string, survived map[string]bool) {
	t.Helper()
	name := s.Kind + " kept by " + k.name
	alive := linktest.InNetns(in, func() error { _, err := netlink.LinkByName("spy"); return err }) == nil && !s.Master
	nic, err := netlink.LinkByName("nic")
	difftest.Must(t, err, netlink.LinkSetUp(nic)) // as the next pod does
	spied := func() int { return 0 }
	if alive {
		spied = stacktest.Listen(t, in, "spy")
		stacktest.Send(t, wire, "peer", true)
		stolen := spied()
		spied = stacktest.Listen(t, in, "spy")
		survived[s.Kind] = survived[s.Kind] || stolen > 0
	}
	end := k.keep(t, in)
	found, _, err := stack.Find("/proc")
	difftest.Must(t, err)
	uppers := found[nic.Attrs().Index]
	receives, err := stack.Receives(nic.Attrs().Index)
	difftest.Must(t, err)
	switch {
	case alive && k.named && survived[s.Kind] && len(uppers) != 1:
		t.Errorf("%s: found %v", name, found)
	case alive && !k.named && s.Kind != "vlan" && survived[s.Kind] && receives == stack.Receivers{}: // a vlan has no receive handler
		t.Errorf("%s: nothing is reported", name)
	}
	for _, u := range uppers {
		difftest.Must(t, u.Remove())
	}
	if alive && k.named {
		receives, err = stack.Receives(nic.Attrs().Index)
		if err != nil || receives != (stack.Receivers{}) {
			t.Errorf("%s: after removal: %+v, %v", name, receives, err)
		}
	}
	if k.named || !alive {
		move(t, nic, next)
		difftest.Must(t, linktest.InNetns(next, func() error {
			l, err := netlink.LinkByName("nic")
			difftest.Must(t, err)
			return netlink.LinkSetUp(l)
		}))
		received := stacktest.Listen(t, next, "nic")
		stacktest.Send(t, wire, "peer", true)
		if got, theirs := received(), spied(); got != 10 || theirs != 0 {
			t.Errorf("%s: the next pod received %d frames of 10, and %d were read by the last one", name, got, theirs)
		}
		difftest.Must(t, linktest.InNetns(next, func() error { return netlink.LinkDel(nic) }))
	} else {
		difftest.Must(t, netlink.LinkDel(nic))
	}
	end()
}

// No kernel of the tests has hardware in another network namespace. [link.Interface.Borrows] decides.
func TestDeviceIsThatOfItsOwnInterface(t *testing.T) {
	busInfo := func(l rtnetlink.Link) string { return map[string]string{"old": "0000:01:00.2"}[l.Name] }
	for want, list := range map[string][]rtnetlink.Link{
		"0000:01:00.2": {{Parent: "0000:01:00.2"}, {Parent: "0000:01:00.2", Kind: "ipoib"}, {Name: "old"}},
		"":             {{Parent: "0000:01:00.2", Kind: "ipoib", Lower: 3}, {Parent: "0000:01:00.2", PortName: "pf0vf1"}, {Name: "old", Kind: "tun"}, {}},
	} {
		for _, l := range list {
			difftest.Same(t, fmt.Sprintf("%+v", l), stack.Device(l, busInfo), want)
		}
	}
}

func TestFreeInterfaceHasNoOtherReceiver(t *testing.T) {
	linktest.RunAlone(t, func(t *testing.T) {
		linktest.AddVeth(t, "nic", "peer", linktest.NewNetns(t))
		nic, err := netlink.LinkByName("nic")
		difftest.Must(t, err)
		index := nic.Attrs().Index
		for _, promisc := range []func(netlink.Link) error{netlink.SetPromiscOn, netlink.SetPromiscOff} { // the user's flag
			difftest.Must(t, promisc(nic))
			list, err := stack.Receives(index)
			difftest.Must(t, err)
			difftest.Equal(t, list, stack.Receivers{})
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0x0300)
		difftest.Must(t, err)
		difftest.Must(t, unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}))
		list, err := stack.Receives(index)
		difftest.Must(t, err)
		difftest.Equal(t, list, stack.Receivers{Promiscuity: 1})
		unix.Close(fd)
		for range 100 { // the namespace of the probe ends later
			if list, err := stack.Receives(index); err != nil || list != (stack.Receivers{}) {
				t.Fatalf("%+v, %v", list, err)
			}
		}
		links, err := netlink.LinkList()
		difftest.Must(t, err)
		for _, l := range links {
			if strings.Contains(l.Attrs().Name, "probe") {
				t.Errorf("left %s", l.Attrs().Name)
			}
		}
		if _, err := stack.Receives(index + 1000); !errors.Is(err, link.ErrNoInterface) {
			t.Errorf("there is no such interface: %v", err)
		}
		linktest.EachOpenFailure(t, map[string]func() error{
			"Find":     func() error { _, _, err := stack.Find("/proc"); return err },
			"Receives": func() error { _, err := stack.Receives(index); return err },
		})
	})
}
