package rtnetlink

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

func linkAnswer() []byte {
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = 7
	return linktest.Message(header.Serialize(),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("net1")),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(1500)),
		nl.NewRtAttr(unix.IFLA_ADDRESS, []byte{2, 3, 0, 0, 0, 1}),
		nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(4)),
		nl.NewRtAttr(unix.IFLA_LINK_NETNSID, nl.Uint32Attr(0)),
		nl.NewRtAttr(unix.IFLA_LINKINFO|unix.NLA_F_NESTED, nl.NewRtAttr(nl.IFLA_INFO_KIND, nl.ZeroTerminated("macvlan")).Serialize()),
		nl.NewRtAttr(unix.IFLA_PARENT_DEV_NAME, nl.ZeroTerminated("10000:e1:00.2")),
		nl.NewRtAttr(unix.IFLA_PARENT_DEV_BUS_NAME, nl.ZeroTerminated("pci")),
	)
}

// wantInvalid fails the test unless err marks an invalid answer, which is different from an absent object.
func wantInvalid(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.EBADMSG) || Absent(err) {
		t.Errorf("%v: absent is %v", err, Absent(err))
	}
}

func TestInvalidInterfaceAttributesAreErrors(t *testing.T) {
	_, err := parseLinks([][]byte{linkAnswer(), linkAnswer()[:unix.SizeofIfInfomsg-1]})
	wantInvalid(t, err)
	for _, kind := range []int{unix.IFLA_LINK, unix.IFLA_LINKINFO, unix.IFLA_PROP_LIST, unix.IFLA_MTU, unix.IFLA_MASTER, unix.IFLA_PROMISCUITY, unix.IFLA_LINK_NETNSID, unix.IFLA_TARGET_NETNSID} {
		for _, value := range [][]byte{{1, 2, 3}, {1, 2, 3, 4, 5}} {
			_, err := ParseLink(linktest.Message(nl.NewIfInfomsg(0).Serialize(), nl.NewRtAttr(kind, value)), Local)
			wantInvalid(t, err)
		}
	}
	for _, message := range []string{"\x00\x00\x07\x00eth4", "\x03\x00\x07\x00eth4", "\x09\x00\x07\x00eth4", "\xff\xff\xff\xff\xff\xff", "\x04\x00\x07\x00\x04\x00", "\x04\x00\x07\x00\x04"} {
		_, err := Attributes([]byte(message), 0)
		wantInvalid(t, err)
	}
}

func TestAbsentErrorsMeanMissingObject(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.ENOENT: true, syscall.ENODEV: true, ErrNoInterface: true, syscall.EINVAL: true, syscall.EOPNOTSUPP: true, syscall.EPROTONOSUPPORT: true,
		syscall.EPERM: false, syscall.EMSGSIZE: false, nil: false,
	} {
		difftest.Same(t, fmt.Sprint(err), Absent(err), want)
	}
}

func TestInterruptedRequestIsRepeated(t *testing.T) {
	for name, test := range map[string]struct {
		errors   []error // results in this order, then nil
		requests int
		want     error
	}{
		"at once":           {nil, 1, nil},
		"list changed":      {[]error{netlink.ErrDumpInterrupted, netlink.ErrDumpInterrupted}, 3, nil},
		"last moment":       {[]error{syscall.EINTR, netlink.ErrDumpInterrupted, syscall.EINTR}, 4, nil},
		"always":            {[]error{syscall.EINTR, syscall.EINTR, syscall.EINTR, netlink.ErrDumpInterrupted}, 4, netlink.ErrDumpInterrupted},
		"removed on retry":  {[]error{syscall.EINTR, syscall.ENODEV}, 2, syscall.ENODEV},
		"broken, not again": {[]error{syscall.EBADMSG}, 1, syscall.EBADMSG},
	} {
		requests := 0
		_, err := Retry(func() (int, error) {
			requests++
			if requests > len(test.errors) {
				return requests, nil
			}
			return 0, test.errors[requests-1]
		})
		if requests != test.requests || !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: %d requests, %v", name, requests, err)
		}
		if errors.Is(err, syscall.EINTR) && (Absent(err) || !strings.Contains(err.Error(), "interrupted 4 times")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Kernels differ in how they report the network namespace of the lower interface.
func TestNetnsOfLowerInterfaceIsParsed(t *testing.T) {
	attr := func(kind int, n int) *nl.RtAttr { return nl.NewRtAttr(kind, nl.Uint32Attr(uint32(int32(n)))) }
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = 3
	for _, test := range []struct {
		name            string
		netnsid         int
		attrs           []*nl.RtAttr
		link, linkNetns int
	}{
		{"same namespace", Local, []*nl.RtAttr{attr(unix.IFLA_LINK, 2)}, 2, Local},
		{"another", Local, []*nl.RtAttr{attr(unix.IFLA_LINK_NETNSID, 0), attr(unix.IFLA_LINK, 2)}, 2, 0},
		{"another, same index, before Linux 5.11", Local, []*nl.RtAttr{attr(unix.IFLA_LINK_NETNSID, 0)}, 3, 0},
		{"another without a number", Local, []*nl.RtAttr{attr(unix.IFLA_LINK, 2), attr(unix.IFLA_LINK_NETNSID, -1)}, 2, -1},
		{"both away", 5, []*nl.RtAttr{attr(unix.IFLA_TARGET_NETNSID, 5), attr(unix.IFLA_LINK, 2)}, 2, 5},
		{"none", Local, nil, 0, Local},
	} {
		f, err := ParseLink(linktest.Message(header.Serialize(), test.attrs...), test.netnsid)
		if err != nil || f.Lower != test.link || f.LowerNSID != test.linkNetns {
			t.Errorf("%s: %d in %d, %v", test.name, f.Lower, f.LowerNSID, err)
		}
	}
	if _, err := ParseLink(linktest.Message(header.Serialize()), 5); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("an answer from the wrong namespace: %v", err)
	}
}

// The attributes fit into the message, and are the same after they are encoded and parsed again. The library parses the
// same attributes, unless it returns an error or panics.
func FuzzAttributes(f *testing.F) {
	whole := linkAnswer()[unix.SizeofIfInfomsg:]
	for n := range len(whole) + 1 { // if one answer of several is invalid, an incomplete list would look like a missing interface
		f.Add(whole[:n])
	}
	f.Add([]byte("\x07\x00\x07\x00eth"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Attributes(data, 0)
		if err != nil {
			wantInvalid(t, err)
			_, err = ParseLink(linktest.Message(nl.NewIfInfomsg(0).Serialize(), nl.NewRtAttr(unix.IFLA_LINKINFO, data)), Local)
			wantInvalid(t, err)
			_, err = ParseLink(append(nl.NewIfInfomsg(0).Serialize(), data...), Local)
			wantInvalid(t, err)
		}
		used, encoded := 0, []byte(nil)
		for _, a := range list {
			used += unix.SizeofRtAttr + len(a.Value)
			encoded = append(encoded, a.Padded()...)
		}
		if used > len(data) {
			t.Fatalf("%d bytes of attributes in %d", used, len(data))
		}
		again, againErr := Attributes(encoded, 0)
		if againErr != nil || len(again) != len(list) {
			t.Fatalf("%v is %v, %v after encoding", list, again, againErr)
		}
		for n := range list {
			if list[n].Kind != again[n].Kind || string(list[n].Value) != string(again[n].Value) {
				t.Fatalf("%v is %v after encoding", list[n], again[n])
			}
		}
		if theirs, ok := library(data); ok && err == nil {
			for n, a := range theirs {
				if list[n].Kind != a.Attr.Type&nl.NLA_TYPE_MASK || string(list[n].Value) != string(a.Value) {
					t.Fatalf("%v is %v to the library", list[n], a)
				}
			}
		}
	})
}

// library reads attributes with vishvananda/netlink. ok is false if it fails or panics.
func library(data []byte) (list []syscall.NetlinkRouteAttr, ok bool) {
	defer func() { ok = recover() == nil && ok }()
	list, err := nl.ParseRouteAttr(data)
	return list, err == nil
}

func TestInterfacesAreFoundInTheirNamespace(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod := linktest.NewNetns(t)
		linktest.AddVeth(t, "veth0", "eth0", pod)
		difftest.Must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})) // whose bus_info is N/A
		c := Dial()
		defer c.Close()
		nic, err := netlink.LinkByName("veth0")
		difftest.Must(t, err, netlink.LinkAddAltName(nic, "second"))
		veth, err := c.Get(Local, 0, SkipStats, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("veth0")))
		difftest.Must(t, err)
		again, err := c.Get(Local, veth.Index, SkipStats)
		difftest.Must(t, err)
		list, err := c.Links(SkipStats)
		difftest.Must(t, err)
		n := slices.IndexFunc(list, func(l Link) bool { return l.Name == "veth0" })
		difftest.Equal(t, list[n], again)
		difftest.Equal(t, []any{again.Name, again.Kind, again.Index, again.AltNames}, []any{"veth0", "veth", veth.Index, []string{"second"}})
		peer, err := c.Get(veth.LowerNSID, veth.Lower, SkipStats)
		difftest.Must(t, err)
		difftest.Equal(t, []any{peer.Name, peer.NSID, peer.Lower}, []any{"eth0", veth.LowerNSID, veth.Index})
		for netns, numbered := range map[string]bool{pod: true, linktest.NewNetns(t): false} {
			file, err := os.Open(netns)
			difftest.Must(t, err)
			id, ok, err := c.NSID(int(file.Fd()))
			difftest.Must(t, err, file.Close())
			if ok != numbered || ok && id != veth.LowerNSID {
				t.Errorf("%s is %d, %v; the peer is in %d", netns, id, ok, veth.LowerNSID)
			}
		}
		_, err = c.Get(Local, 1000, SkipStats)
		difftest.Is(t, err, ErrNoInterface)
		for want, list := range map[string][]Link{
			"N/A": {{NSID: Local, Name: "br0"}, {NSID: Local, Name: "br0", Parent: "virtio2", Bus: "virtio"}},
			"":    {{NSID: 0, Name: "br0"}, {NSID: Local, Name: "br0", Parent: "0000:01:00.0", Bus: "pci"}, {NSID: Local, Name: "none"}},
		} {
			for _, l := range list {
				difftest.Same(t, fmt.Sprintf("%+v", l), c.BusInfo(l), want)
			}
		}
		ask := func(request func(c Conn) error) func() error {
			return func() error {
				c := Dial()
				defer c.Close()
				return cmp.Or(request(c), errors.New(c.BusInfo(Link{NSID: Local, Name: "br0"})))
			}
		}
		linktest.EachOpenFailure(t, map[string]func() error{
			"Get":   ask(func(c Conn) error { _, err := c.Get(Local, 1, SkipStats); return err }),
			"Links": ask(func(c Conn) error { _, err := c.Links(SkipStats); return err }),
		})
	})
}

// A program in the pod's network namespace with CAP_NET_ADMIN can send messages to other sockets there.
func TestAnswersOfOtherProgramsAreIgnored(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		c := Dial()
		defer c.Close()
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = 1
		req := c.request(unix.RTM_GETLINK, 0, msg)
		pid, err := c.socket.Socket.GetPid()
		difftest.Must(t, err)
		forger, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
		difftest.Must(t, err)
		defer forger.Close()
		forged := *req
		forged.Type, forged.Data = unix.RTM_NEWLINK, []nl.NetlinkRequestData{nl.NewIfInfomsg(unix.AF_UNSPEC), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("forged"))}
		difftest.Must(t, unix.Sendto(forger.GetFd(), forged.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: pid}))
		answer, err := c.one(req)
		difftest.Must(t, err)
		if f, err := ParseLink(answer, Local); err != nil || f.Name != "lo" {
			t.Errorf("got %+v, %v", f, err)
		}
		forged.Type = unix.NLMSG_NOOP // which the kernel does not answer
		_, err = c.one(&forged)
		difftest.Is(t, err, unix.EAGAIN)
		c.Close()
		for what, f := range map[string]func() error{
			"Get":     func() error { _, err := c.Get(Local, 1, SkipStats); return err },
			"Links":   func() error { _, err := c.Links(SkipStats); return err },
			"SetLink": func() error { return c.SetLink(1, msg) },
			"NewLink": func() error { return c.NewLink() },
			"NSID":    func() error { _, _, err := c.NSID(forger.GetFd()); return err },
		} {
			if err := f(); err == nil {
				t.Errorf("%s works on a closed socket", what)
			}
		}
		difftest.Equal(t, c.BusInfo(Link{NSID: Local, Name: "lo"}), "")
	})
}
