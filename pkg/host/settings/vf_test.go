package settings

import (
	"encoding/binary"
	"errors"
	"reflect"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/test/difftest"
)

// words encodes a struct of settings as the kernel does.
func words(kind int, list ...uint32) *nl.RtAttr {
	var value []byte
	for _, w := range list {
		value = binary.NativeEndian.AppendUint32(value, w)
	}
	return nl.NewRtAttr(kind, value)
}

// newlink is an RTM_NEWLINK of a PF.
func newlink(vfs ...[]*nl.RtAttr) rtnetlink.Link {
	list := nl.NewRtAttr(unix.IFLA_VFINFO_LIST, nil)
	for _, settings := range vfs {
		vf := list.AddRtAttr(nl.IFLA_VF_INFO, nil)
		for _, s := range settings {
			vf.AddChild(s)
		}
	}
	return parsed(list, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("ens1f0")), nl.NewRtAttr(unix.IFLA_PARENT_DEV_NAME, nl.ZeroTerminated("0000:03:00.0")))
}

// parsed is an RTM_NEWLINK with these attributes.
func parsed(attrs ...*nl.RtAttr) rtnetlink.Link {
	l, _ := rtnetlink.ParseLink(linktest.Message(nl.NewIfInfomsg(unix.AF_UNSPEC).Serialize(), attrs...), rtnetlink.Local) // the attributes are whole
	return l
}

func TestVFsHaveSettingsOfPF(t *testing.T) {
	const unknown = ^uint32(0)
	mac := nl.VfMac{Vf: 1, Mac: [32]byte{2, 0, 0, 0, 0, 1}}
	vlan := words(nl.IFLA_VF_VLAN_LIST)
	info := nl.VfVlanInfo{VfVlan: nl.VfVlan{Vf: 1, Vlan: 7, Qos: 3}, VlanProto: binary.NativeEndian.Uint16([]byte{0x88, 0xa8})} // big-endian
	vlan.AddRtAttr(nl.IFLA_VF_VLAN_INFO, info.Serialize())
	node := nl.VfGUID{Vf: 1, GUID: 0x0011223344556677}
	got, err := vfsOf(parsed(), newlink(
		[]*nl.RtAttr{nl.NewRtAttr(nl.IFLA_VF_MAC, (&nl.VfMac{}).Serialize()), words(nl.IFLA_VF_SPOOFCHK, 0, unknown), words(nl.IFLA_VF_TRUST, 0, unknown)},
		[]*nl.RtAttr{
			nl.NewRtAttr(nl.IFLA_VF_MAC, mac.Serialize()), words(nl.IFLA_VF_VLAN, 1, 7, 3), vlan, words(nl.IFLA_VF_RATE, 1, 10, 200),
			words(nl.IFLA_VF_SPOOFCHK, 1, 1), words(nl.IFLA_VF_LINK_STATE, 1, 2), words(nl.IFLA_VF_TRUST, 1, 1),
			nl.NewRtAttr(nl.IFLA_VF_IB_NODE_GUID, node.Serialize()), nl.NewRtAttr(nl.IFLA_VF_IB_PORT_GUID, (&nl.VfGUID{Vf: 1}).Serialize()),
		},
	), newlink([]*nl.RtAttr{words(nl.IFLA_VF_TRUST, 0, 1)}))
	want := []VFRecord{
		{PF: "0000:03:00.0", PFName: "ens1f0"},
		{PF: "0000:03:00.0", PFName: "ens1f0", Index: 1, VF: VF{
			MAC: "02:00:00:00:00:01", VLAN: 7, Trust: true, QoS: 3, VLANProto: 0x88a8, SpoofCheck: true, LinkState: nl.IFLA_VF_LINK_STATE_DISABLE, MinRate: 10, MaxRate: 200,
			NodeGUID: "00:11:22:33:44:55:66:77"}},
		{PF: "0000:03:00.0", PFName: "ens1f0", VF: VF{Trust: true}},
	}
	difftest.Must(t, err)
	difftest.Equal(t, got, want)
	for kind, size := range map[int]int{
		nl.IFLA_VF_MAC: 10, nl.IFLA_VF_VLAN: 12, nl.IFLA_VF_SPOOFCHK: 8, nl.IFLA_VF_LINK_STATE: 8, nl.IFLA_VF_RATE: 12, nl.IFLA_VF_TRUST: 8,
		nl.IFLA_VF_IB_NODE_GUID: 16, nl.IFLA_VF_IB_PORT_GUID: 16, nl.IFLA_VF_VLAN_LIST: 18, 99: 0,
	} {
		for n := range 40 {
			_, err := vfsOf(newlink([]*nl.RtAttr{nl.NewRtAttr(kind, make([]byte, n))}))
			if errors.Is(err, syscall.EBADMSG) != (n < size) {
				t.Errorf("setting %d of %d bytes: %v", kind, n, err)
			}
		}
	}
	for _, broken := range [][]byte{{1, 2, 3}, nl.NewRtAttr(nl.IFLA_VF_INFO, []byte{1, 2, 3}).Serialize()} {
		_, err := vfsOf(parsed(nl.NewRtAttr(unix.IFLA_VFINFO_LIST, broken)))
		difftest.Is(t, err, syscall.EBADMSG)
	}
	_, err = VFs() // a machine without VFs
	difftest.Must(t, err)
}

func TestUnlikeComparesEachVFSetting(t *testing.T) {
	for _, address := range []string{"", "02:00:00:00:00:01", "00:11:22:33:44:55:66:77"} { // as vfsOf has it, and SetVF sets it
		difftest.Equal(t, hardware(octets(address)), address)
	}
	for n := range reflect.TypeFor[VF]().NumField() {
		var s VF
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
		if got := s.Unlike(VF{}); len(got) != 1 || s.Unlike(s) != nil {
			t.Errorf("%+v: %q", s, got)
		}
	}
}
