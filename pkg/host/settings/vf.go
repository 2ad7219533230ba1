package settings

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/rtnetlink"
)

// VFRecord is a VF of a PF. The VF may be in another network namespace.
type VFRecord struct {
	PF     string `json:"pf"`     // PCI address of the PF
	PFName string `json:"pfName"` // interface of the PF
	Index  int    `json:"index"`  // index of the VF on its PF
	VF
}

// VF are a VF's settings on its PF (IFLA_VF_INFO). Settings that the PF's driver does not report are zero.
type VF struct {
	MAC        string `json:"mac,omitempty"`       // administrative MAC address; "" = none
	VLAN       int    `json:"vlan,omitempty"`      // 0 = none
	QoS        int    `json:"qos,omitempty"`       // priority of the VLAN
	VLANProto  int    `json:"vlanProto,omitempty"` // EtherType of the VLAN, 0x8100 or 0x88a8
	Trust      bool   `json:"trust,omitempty"`
	SpoofCheck bool   `json:"spoofCheck,omitempty"` // the PF drops frames with a MAC other than the VF's
	LinkState  uint32 `json:"linkState,omitempty"`  // IFLA_VF_LINK_STATE_AUTO, _ENABLE or _DISABLE
	MinRate    uint32 `json:"minRate,omitempty"`    // Mbit/s; 0 = none
	MaxRate    uint32 `json:"maxRate,omitempty"`    // Mbit/s; 0 = none
	NodeGUID   string `json:"nodeGUID,omitempty"`   // InfiniBand, "00:11:22:33:44:55:66:77"
	PortGUID   string `json:"portGUID,omitempty"`
}

// The names of the settings. The kernel sets each in one request.
const (
	VFMAC        = "vf-mac"
	VFVLAN       = "vf-vlan" // including priority and protocol
	VFTrust      = "vf-trust"
	VFSpoofCheck = "vf-spoofchk"
	VFLinkState  = "vf-link-state"
	VFRate       = "vf-rate" // minimum and maximum
	VFGUID       = "vf-guid" // node GUID and port GUID
)

func (s VF) Unlike(other VF) (names []string) {
	for _, c := range []struct {
		name    string
		differs bool
	}{
		{VFMAC, s.MAC != other.MAC},
		{VFVLAN, s.VLAN != other.VLAN || s.QoS != other.QoS || s.VLANProto != other.VLANProto},
		{VFTrust, s.Trust != other.Trust},
		{VFSpoofCheck, s.SpoofCheck != other.SpoofCheck},
		{VFLinkState, s.LinkState != other.LinkState},
		{VFRate, s.MinRate != other.MinRate || s.MaxRate != other.MaxRate},
		{VFGUID, s.NodeGUID != other.NodeGUID || s.PortGUID != other.PortGUID},
	} {
		if c.differs {
			names = append(names, c.name)
		}
	}
	return names
}

// VFs lists the VFs of all PFs with an interface in the current network namespace. Drivers that configure VFs in
// another way report none.
func VFs() (list []VFRecord, err error) {
	c := rtnetlink.Dial()
	defer c.Close()
	links, err := c.Links(withVFs)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	return vfsOf(links...)
}

const withVFs = nl.RTEXT_FILTER_VF | rtnetlink.SkipStats

func vfsOf(pfs ...rtnetlink.Link) (list []VFRecord, err error) {
	for _, pf := range pfs {
		vfs, err := rtnetlink.Attributes(byKind(pf.Attributes)[unix.IFLA_VFINFO_LIST].Value, 0)
		if err != nil {
			return nil, err
		}
		for _, info := range vfs {
			vf := VFRecord{PF: pf.Parent, PFName: pf.Name}
			settings, err := rtnetlink.Attributes(info.Value, 0)
			for _, s := range settings {
				err = cmp.Or(err, vf.take(s))
			}
			if err != nil {
				return nil, err
			}
			list = append(list, vf)
		}
	}
	return list, nil
}

// take parses one setting, a struct that begins with the number of the VF (linux/if_link.h).
func (vf *VFRecord) take(a rtnetlink.Attribute) error {
	used := map[uint16]int{ // bytes
		nl.IFLA_VF_MAC: 10, nl.IFLA_VF_VLAN: 12, nl.IFLA_VF_SPOOFCHK: 8, nl.IFLA_VF_LINK_STATE: 8, nl.IFLA_VF_RATE: 12, nl.IFLA_VF_TRUST: 8,
		nl.IFLA_VF_IB_NODE_GUID: 16, nl.IFLA_VF_IB_PORT_GUID: 16, nl.IFLA_VF_VLAN_LIST: 18,
	}
	if len(a.Value) < used[a.Kind] {
		return fmt.Errorf("setting %d of a VF has %d bytes: %w", a.Kind, len(a.Value), syscall.EBADMSG)
	}
	word := func(n int) uint32 { return binary.NativeEndian.Uint32(a.Value[4*n:]) }
	const on = 1 // ^uint32(0) = not reported
	switch a.Kind {
	case nl.IFLA_VF_MAC:
		vf.Index, vf.MAC = int(word(0)), hardware(a.Value[4:10])
	case nl.IFLA_VF_VLAN:
		vf.VLAN, vf.QoS = int(word(1)), int(word(2))
	case nl.IFLA_VF_VLAN_LIST: // one struct ifla_vf_vlan_info, whose last field is big-endian
		vf.VLANProto = int(binary.BigEndian.Uint16(a.Value[16:]))
	case nl.IFLA_VF_SPOOFCHK:
		vf.SpoofCheck = word(1) == on
	case nl.IFLA_VF_TRUST:
		vf.Trust = word(1) == on
	case nl.IFLA_VF_LINK_STATE:
		vf.LinkState = word(1)
	case nl.IFLA_VF_RATE:
		vf.MinRate, vf.MaxRate = word(1), word(2)
	case nl.IFLA_VF_IB_NODE_GUID:
		vf.NodeGUID = guid(a.Value)
	case nl.IFLA_VF_IB_PORT_GUID:
		vf.PortGUID = guid(a.Value)
	}
	return nil
}

func hardware(address net.HardwareAddr) string {
	if text := address.String(); strings.Trim(text, "0:") != "" {
		return text
	}
	return ""
}

// guid formats the GUID in a struct ifla_vf_guid, a number in host byte order.
func guid(value []byte) string {
	return hardware(binary.BigEndian.AppendUint64(nil, binary.NativeEndian.Uint64(value[8:])))
}

// SetVF sets one setting of a VF to its value in to. setting is a name that [VF.Unlike] returns. pf is the
// interface of the PF. SetVF needs CAP_NET_ADMIN.
func (Kernel) SetVF(pf string, n int, setting string, to VF) error {
	l, err := netlink.LinkByName(pf)
	if err != nil {
		return fmt.Errorf("interface %q: %w", pf, err)
	}
	switch setting {
	case VFMAC:
		err = netlink.LinkSetVfHardwareAddr(l, n, octets(to.MAC))
	case VFVLAN:
		err = netlink.LinkSetVfVlanQosProto(l, n, to.VLAN, to.QoS, cmp.Or(to.VLANProto, unix.ETH_P_8021Q))
	case VFTrust:
		err = netlink.LinkSetVfTrust(l, n, to.Trust)
	case VFSpoofCheck:
		err = netlink.LinkSetVfSpoofchk(l, n, to.SpoofCheck)
	case VFLinkState:
		err = netlink.LinkSetVfState(l, n, to.LinkState)
	case VFRate:
		err = netlink.LinkSetVfRate(l, n, int(to.MinRate), int(to.MaxRate))
	case VFGUID:
		err = errors.Join(netlink.LinkSetVfNodeGUID(l, n, octets(to.NodeGUID)), netlink.LinkSetVfPortGUID(l, n, octets(to.PortGUID)))
	}
	return failed(pf, fmt.Sprintf("set %s of VF %d", setting, n), err)
}

// octets parses an address. For "" it returns zeros, enough for a GUID, which remove the address.
func octets(text string) net.HardwareAddr {
	if a, err := net.ParseMAC(text); err == nil {
		return a
	}
	return make(net.HardwareAddr, 8)
}

// VF returns the settings of a VF on its PF, or nil if the driver does not report them. pf is the interface of the PF. If it
// does not exist, the error is [rtnetlink.ErrNoInterface].
func (Kernel) VF(pf string, index int) (*VF, error) {
	c := rtnetlink.Dial()
	defer c.Close()
	var list []VFRecord
	l, err := c.Get(rtnetlink.Local, 0, withVFs, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(pf)))
	if err == nil {
		list, err = vfsOf(l)
	}
	if at := slices.IndexFunc(list, func(vf VFRecord) bool { return vf.Index == index }); at >= 0 {
		return &list[at].VF, nil
	}
	return nil, failed(pf, fmt.Sprintf("read VF %d", index), err)
}
