package link

import (
	"encoding/binary"
	"errors"
	"reflect"
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

// portAnswer is the answer for a port of 10000:e1:00.0, a PF in a PCI domain with five digits. It has all attributes
// that parsePort reads, and further attributes.
func portAnswer() []byte {
	return message([]byte{nl.DEVLINK_CMD_PORT_NEW, nl.GENL_DEVLINK_VERSION, 0, 0},
		nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated("pci")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated("10000:e1:00.0")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_INDEX, nl.Uint32Attr(32768)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_TYPE, nl.Uint16Attr(2)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_NETDEV_IFINDEX, nl.Uint32Attr(11)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_NETDEV_NAME, nl.ZeroTerminated("eth5")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_FLAVOUR, nl.Uint16Attr(nl.DEVLINK_PORT_FLAVOUR_PCI_VF)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_CONTROLLER_NUMBER, nl.Uint32Attr(3)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_PCI_PF_NUMBER, nl.Uint16Attr(1)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_PCI_VF_NUMBER, nl.Uint16Attr(2)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_PCI_SF_NUMBER, nl.Uint32Attr(88)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_EXTERNAL, []byte{1}),
		nl.NewRtAttr(9999, []byte{1, 2, 3}),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_FUNCTION|unix.NLA_F_NESTED,
			nl.NewRtAttr(nl.DEVLINK_PORT_FUNCTION_ATTR_HW_ADDR, []byte{2, 3, 0, 0, 0, 1}).Serialize()),
	)
}

func linkAnswer() []byte {
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = 7
	return message(header.Serialize(),
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

func TestPortsOfOtherDevicesAreDropped(t *testing.T) {
	other := message([]byte{nl.DEVLINK_CMD_PORT_NEW, nl.GENL_DEVLINK_VERSION, 0, 0},
		nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated("pci")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated("0000:e1:00.0")))
	ports, err := Handle{"pci", "10000:e1:00.0"}.ParsePorts([][]byte{other, portAnswer(), other})
	difftest.Must(t, err)
	difftest.Equal(t, ports, []PortRecord{{
		Bus: "pci", Device: "10000:e1:00.0", Index: 32768, Netdev: "eth5", Flavour: "pcivf",
		PFNumber: new(uint16(1)), VFNumber: new(uint16(2)), SFNumber: new(uint32(88)), Controller: new(uint32(3)), External: new(true),
	}})
	if all, err := (Handle{}).ParsePorts([][]byte{other, portAnswer()}); err != nil || len(all) != 2 {
		t.Errorf("all devices: %d ports, %v", len(all), err)
	}
}

// An answer that ends between two attributes is valid. If one answer of several is invalid, the list is an error,
// because an incomplete list would look like a missing port.
func TestAnswerTruncatedInAttributeIsAnError(t *testing.T) {
	for name, whole := range map[string][]byte{"port": portAnswer(), "link": linkAnswer()} {
		header := map[string]int{"port": nl.SizeofGenlmsg, "link": unix.SizeofIfInfomsg}[name]
		all, err := attributes(whole, header)
		if err != nil || len(all) < 8 {
			t.Fatalf("%s: %d attributes, %v", name, len(all), err)
		}
		cuts := 0
		for n := range whole {
			some, err := attributes(whole[:n:n], header)
			if err == nil && !reflect.DeepEqual(some, all[:len(some):len(some)]) && len(some) > 0 {
				t.Errorf("%s of %d bytes has %v", name, n, some)
			}
			if err != nil {
				wantInvalid(t, err)
				cuts++
			}
			_, portErr := parsePort(whole[:n:n])
			_, linkErr := parse(whole[:n:n], local)
			if name == "port" && (portErr == nil) != (err == nil) || name == "link" && (linkErr == nil) != (err == nil) {
				t.Errorf("%s of %d bytes: %v, %v, %v", name, n, err, portErr, linkErr)
			}
		}
		if cuts < len(whole)/2 {
			t.Errorf("%s: only %d of %d truncations are errors", name, cuts, len(whole))
		}
	}
	if ports, err := (Handle{}).ParsePorts([][]byte{portAnswer(), portAnswer()[:50]}); ports != nil || err == nil {
		t.Errorf("%d ports, %v", len(ports), err)
	}
}

// wantInvalid fails the test unless err marks an invalid answer, which is different from an absent object.
func wantInvalid(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.EBADMSG) || absent(err) {
		t.Errorf("%v: absent is %v", err, absent(err))
	}
}

func TestInvalidPortAttributesAreErrors(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the messages are little-endian")
	}
	for name, test := range map[string]struct {
		rest string // after the header of a port
		err  bool
		name string
	}{
		"no zero byte":         {rest: "\x08\x00\x07\x00eth4", name: "eth4"},
		"no room for padding":  {rest: "\x07\x00\x07\x00eth", name: "eth"},
		"two names":            {rest: "\x06\x00\x07\x00a\x00  \x06\x00\x07\x00b\x00  ", name: "b"},
		"zero bytes":           {rest: "\x08\x00\x07\x00\x00\x00\x00\x00"},
		"empty":                {rest: "\x04\x00\x07\x00"},
		"unknown":              {rest: "\x05\x00\xff\x3f\x01\x00\x00\x00"},
		"nested":               {rest: "\x06\x00\x07\x80a\x00  ", name: "a"},
		"length of zero":       {rest: "\x00\x00\x07\x00eth4", err: true},
		"length of three":      {rest: "\x03\x00\x07\x00eth4", err: true},
		"longer than the rest": {rest: "\x09\x00\x07\x00eth4", err: true},
		"all ones":             {rest: "\xff\xff\xff\xff\xff\xff", err: true},
		"half a header":        {rest: "\x04\x00\x07\x00\x04\x00", err: true},
		"flavour of a byte":    {rest: "\x05\x00\x4d\x00\x04\x00\x00\x00", err: true},
		"external of four":     {rest: "\x08\x00\x95\x00\x01\x00\x00\x00", err: true},
		"external of none":     {rest: "\x04\x00\x95\x00", err: true},
		"VF of a byte":         {rest: "\x05\x00\x80\x00\x01\x00\x00\x00", err: true},
		"VF of four":           {rest: "\x08\x00\x80\x00\x01\x00\x00\x00", err: true},
		"SF of two":            {rest: "\x06\x00\xa4\x00\x01\x00\x00\x00", err: true},
		"index of none":        {rest: "\x04\x00\x03\x00", err: true},
	} {
		port, err := parsePort([]byte("\x07\x01\x00\x00" + test.rest))
		if (err != nil) != test.err || err == nil && port.Netdev != test.name {
			t.Errorf("%s: %+v, %v", name, port, err)
		}
		if err != nil {
			wantInvalid(t, err)
		}
	}
}

func TestInvalidInterfaceAttributesAreErrors(t *testing.T) {
	for _, a := range []*nl.RtAttr{nl.NewRtAttr(unix.IFLA_LINK, []byte{1}), nl.NewRtAttr(unix.IFLA_LINKINFO, []byte{1, 2, 3})} {
		_, err := parse(message(nl.NewIfInfomsg(0).Serialize(), a), local)
		wantInvalid(t, err)
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
		"signal":            {[]error{syscall.EINTR}, 2, nil},
		"last moment":       {[]error{syscall.EINTR, netlink.ErrDumpInterrupted, syscall.EINTR}, 4, nil},
		"always":            {[]error{syscall.EINTR, syscall.EINTR, syscall.EINTR, netlink.ErrDumpInterrupted}, 4, netlink.ErrDumpInterrupted},
		"removed on retry":  {[]error{syscall.EINTR, syscall.ENODEV}, 2, syscall.ENODEV},
		"broken, not again": {[]error{syscall.EBADMSG}, 1, syscall.EBADMSG},
	} {
		requests := 0
		_, err := retryInterrupted(func() (int, error) {
			requests++
			if requests > len(test.errors) {
				return requests, nil
			}
			return 0, test.errors[requests-1]
		})
		if requests != test.requests || !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: %d requests, %v", name, requests, err)
		}
		if errors.Is(err, syscall.EINTR) && (absent(err) || !strings.Contains(err.Error(), "interrupted 4 times")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// words encodes a struct of settings as the kernel does.
func words(kind int, list ...uint32) *nl.RtAttr {
	var value []byte
	for _, w := range list {
		value = binary.NativeEndian.AppendUint32(value, w)
	}
	return nl.NewRtAttr(kind, value)
}

// newlink is an RTM_NEWLINK of a PF.
func newlink(vfs ...[]*nl.RtAttr) []byte {
	list := nl.NewRtAttr(unix.IFLA_VFINFO_LIST, nil)
	for _, settings := range vfs {
		vf := list.AddRtAttr(nl.IFLA_VF_INFO, nil)
		for _, s := range settings {
			vf.AddChild(s)
		}
	}
	return message(nl.NewIfInfomsg(unix.AF_UNSPEC).Serialize(),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("ens1f0")), list, nl.NewRtAttr(unix.IFLA_PARENT_DEV_NAME, nl.ZeroTerminated("0000:03:00.0")))
}

func TestVFsHaveSettingsOfPF(t *testing.T) {
	const unknown = ^uint32(0)
	mac := nl.VfMac{Vf: 1, Mac: [32]byte{2, 0, 0, 0, 0, 1}}
	vlan := words(nl.IFLA_VF_VLAN_LIST)
	info := nl.VfVlanInfo{VfVlan: nl.VfVlan{Vf: 1, Vlan: 7, Qos: 3}, VlanProto: 0xa888} // big-endian
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		info.VlanProto = 0x88a8
	}
	vlan.AddRtAttr(nl.IFLA_VF_VLAN_INFO, info.Serialize())
	node := nl.VfGUID{Vf: 1, GUID: 0x0011223344556677}
	got, err := vfRecords(newlink(
		[]*nl.RtAttr{nl.NewRtAttr(nl.IFLA_VF_MAC, (&nl.VfMac{}).Serialize()), words(nl.IFLA_VF_SPOOFCHK, 0, unknown), words(nl.IFLA_VF_TRUST, 0, unknown)},
		[]*nl.RtAttr{
			nl.NewRtAttr(nl.IFLA_VF_MAC, mac.Serialize()), words(nl.IFLA_VF_VLAN, 1, 7, 3), vlan, words(nl.IFLA_VF_RATE, 1, 10, 200),
			words(nl.IFLA_VF_SPOOFCHK, 1, 1), words(nl.IFLA_VF_LINK_STATE, 1, 2), words(nl.IFLA_VF_TRUST, 1, 1),
			nl.NewRtAttr(nl.IFLA_VF_IB_NODE_GUID, node.Serialize()), nl.NewRtAttr(nl.IFLA_VF_IB_PORT_GUID, (&nl.VfGUID{Vf: 1}).Serialize()),
		},
	))
	want := []VFRecord{
		{PF: "0000:03:00.0", PFName: "ens1f0"},
		{PF: "0000:03:00.0", PFName: "ens1f0", Index: 1, VFSettings: VFSettings{
			MAC: "02:00:00:00:00:01", VLAN: 7, Trust: true, QoS: 3, VLANProto: 0x88a8, SpoofCheck: true, LinkState: nl.IFLA_VF_LINK_STATE_DISABLE, MinRate: 10, MaxRate: 200,
			NodeGUID: "00:11:22:33:44:55:66:77"}},
	}
	difftest.Must(t, err)
	difftest.Equal(t, got, want)
	for _, kind := range []int{nl.IFLA_VF_MAC, nl.IFLA_VF_VLAN, nl.IFLA_VF_RATE, nl.IFLA_VF_IB_NODE_GUID, nl.IFLA_VF_VLAN_LIST} {
		_, err := vfRecords(newlink([]*nl.RtAttr{words(kind, 0)})) // the setting is truncated
		difftest.Is(t, err, syscall.EBADMSG)
	}
	_, err = Recorder{}.VFs() // a machine without VFs
	difftest.Must(t, err)
}

func TestUnlikeComparesEachVFSetting(t *testing.T) {
	for n := range reflect.TypeFor[VFSettings]().NumField() {
		var s VFSettings
		switch f := reflect.ValueOf(&s).Elem().Field(n); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int:
			f.SetInt(1)
		default:
			f.SetUint(1)
		}
		if got := s.Unlike(VFSettings{}); len(got) != 1 || s.Unlike(s) != nil {
			t.Errorf("%+v: %q", s, got)
		}
	}
}

// A program in the pod's network namespace with CAP_NET_ADMIN can send messages to other sockets there.
func TestAnswersOfOtherProgramsAreIgnored(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r, err := dial("")
		difftest.Must(t, err)
		defer r.socket.Close()
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = 1
		req := r.request(unix.RTM_GETLINK, msg)
		pid, err := r.socket.Socket.GetPid()
		difftest.Must(t, err)
		forger, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
		difftest.Must(t, err)
		defer forger.Close()
		forged := *req
		forged.Type, forged.Data = unix.RTM_NEWLINK, []nl.NetlinkRequestData{nl.NewIfInfomsg(unix.AF_UNSPEC), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("forged"))}
		difftest.Must(t, unix.Sendto(forger.GetFd(), forged.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: pid}))
		answers, err := r.one(req)
		difftest.Must(t, err)
		if f, err := parse(answers[0], local); err != nil || f.Name != "lo" {
			t.Errorf("got %+v, %v", f, err)
		}
	})
}
