// Package settings reads and restores what a pod can set on a network interface: everything that the kernel reports of
// it and that remains when the interface moves to another network namespace ([Dump]), and the settings of a VF on its PF
// ([VF]).
package settings

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/rtnetlink"
)

// A Dump is everything that the kernel reports of an interface and that remains when it moves to another network
// namespace, without its name, MTU and MAC. The keys are names of settings: see [Dump.Unlike]. The values are the
// netlink attributes in hexadecimal, so that a setting that this package does not know, such as one of a newer
// kernel, is compared too.
type Dump map[string]string

// The names of settings with a rule of their own.
const (
	AltNames = "altnames" // the value is a sorted list with spaces
	Ethtool  = "ethtool"  // missing, but for kernels without its netlink interface (before Linux 5.6): "none"

	// A Dump lacks these.
	Name = "name"
	MTU  = "mtu" // the value is a [Number]
	MAC  = "mac" // the value is in hexadecimal
)

// Number returns the value of a setting that is a number.
func Number(n uint32) string { return hex.EncodeToString(binary.NativeEndian.AppendUint32(nil, n)) }

// userFlags are the flags that a user can set. The kernel separately counts requests of bridges, macvtaps and packet
// sockets for promisc and allmulti, and changing these flags does not change this count.
var userFlags = map[string]uint32{
	"debug": unix.IFF_DEBUG, "notrailers": unix.IFF_NOTRAILERS, "noarp": unix.IFF_NOARP, "promisc": unix.IFF_PROMISC, "allmulti": unix.IFF_ALLMULTI,
	"multicast": unix.IFF_MULTICAST, "portsel": unix.IFF_PORTSEL, "automedia": unix.IFF_AUTOMEDIA, "dynamic": unix.IFF_DYNAMIC,
}

// settable are the attributes of RTM_NEWLINK that RTM_SETLINK sets.
var settable = map[uint16]string{
	unix.IFLA_BROADCAST: "broadcast", unix.IFLA_TXQLEN: "txqueuelen", unix.IFLA_LINKMODE: "mode", unix.IFLA_IFALIAS: "alias", unix.IFLA_GROUP: "group",
	unix.IFLA_PROTO_DOWN: "protodown", unix.IFLA_GSO_MAX_SEGS: "gso_max_segs", unix.IFLA_GSO_MAX_SIZE: "gso_max_size", unix.IFLA_GRO_MAX_SIZE: "gro_max_size",
	unix.IFLA_GSO_IPV4_MAX_SIZE: "gso_ipv4_max_size", unix.IFLA_GRO_IPV4_MAX_SIZE: "gro_ipv4_max_size",
}

// leftOut are the attributes of RTM_NEWLINK that are no settings, with the reason.
var leftOut = map[uint16]string{
	unix.IFLA_ADDRESS: own, unix.IFLA_IFNAME: own, unix.IFLA_MTU: own, unix.IFLA_ALT_IFNAME: own, unix.IFLA_PROP_LIST: own, unix.IFLA_VFINFO_LIST: own,
	unix.IFLA_STATS: counts, unix.IFLA_STATS64: counts, unix.IFLA_CARRIER_CHANGES: counts, unix.IFLA_CARRIER_UP_COUNT: counts, unix.IFLA_CARRIER_DOWN_COUNT: counts,
	unix.IFLA_PROMISCUITY: counts, iflaAllMulti: counts,
	unix.IFLA_LINK: place, unix.IFLA_LINK_NETNSID: place, unix.IFLA_NEW_NETNSID: place, unix.IFLA_NEW_IFINDEX: place, unix.IFLA_TARGET_NETNSID: place,
	unix.IFLA_EVENT: place, unix.IFLA_QDISC: anew, unix.IFLA_AF_SPEC: anew,
	unix.IFLA_OPERSTATE: "follows from carrier and mode", unix.IFLA_CARRIER: "follows from the link partner",
	unix.IFLA_NUM_TX_QUEUES: fixed, unix.IFLA_NUM_RX_QUEUES: fixed, unix.IFLA_MAP: fixed, unix.IFLA_MIN_MTU: fixed, unix.IFLA_MAX_MTU: fixed,
	unix.IFLA_TSO_MAX_SIZE: fixed, unix.IFLA_TSO_MAX_SEGS: fixed, iflaPacing: fixed, iflaNetnsImmutable: fixed, iflaHeadroom: fixed, iflaTailroom: fixed,
	unix.IFLA_PHYS_PORT_ID: fixed, unix.IFLA_PHYS_SWITCH_ID: fixed, unix.IFLA_PHYS_PORT_NAME: fixed, unix.IFLA_PERM_ADDRESS: fixed,
	unix.IFLA_PARENT_DEV_NAME: fixed, unix.IFLA_PARENT_DEV_BUS_NAME: fixed, iflaDevlinkPort: fixed, iflaDPLLPin: fixed,
}

const (
	own    = "restored by itself"
	counts = "counts events, or users in other programs"
	place  = "where the interface or its lower interface is"
	anew   = "the kernel makes it anew when the interface moves (net/core/dev.c, dev_change_net_namespace)"
	fixed  = "the driver sets it"

	// Attributes that golang.org/x/sys/unix lacks.
	iflaAllMulti       = 61
	iflaDevlinkPort    = 62
	iflaDPLLPin        = 65
	iflaPacing         = 66
	iflaNetnsImmutable = 67
	iflaHeadroom       = 68
	iflaTailroom       = 69
)

// Unlike returns the names of the settings that differ, sorted. Requests of ethtool that the driver has answered only
// once do not count, because some drivers refuse them while the interface is down.
func (s Dump) Unlike(other Dump) (names []string) {
	for _, a := range []Dump{s, other} {
		for name := range a {
			if s[name] == other[name] || slices.Contains(names, name) {
				continue
			}
			if kind, other := hashKind(s[name]), hashKind(other[name]); kind != other && kind != "" && other != "" {
				continue // the hashes of another build
			}
			if ethtoolCommand(name) == 0 || s[name] != "" && other[name] != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Names returns the names of the settings that this package knows, sorted. Each may break the network of the next pod, or
// let the former pod read its frames.
func Names() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(userFlags)), slices.Collect(maps.Values(settable)),
		slices.Collect(maps.Keys(xdpModes)), slices.Collect(maps.Keys(tcxPoints)), []string{AltNames, "features"})))
}

// Text returns the value of a setting for people; "none" = it has none.
func (s Dump) Text(setting string) string {
	value := s[setting]
	raw, err := hex.DecodeString(value)
	switch {
	case value == "":
		return "none"
	case err == nil && len(raw) == 1:
		return strconv.Itoa(int(raw[0]))
	case err == nil && len(raw) == 4:
		return strconv.Itoa(int(binary.NativeEndian.Uint32(raw)))
	case err == nil && setting == "alias":
		return strconv.Quote(string(raw))
	}
	return value
}

// dump returns the settings in an RTM_NEWLINK. Its flags are the flags that a user has set. /sys/class/net/*/flags also contains
// flags that only the kernel's count has set (net/core/dev.c, netif_get_flags).
func dump(l rtnetlink.Link) (Dump, error) {
	s := Dump{}
	for name, flag := range userFlags {
		if l.Flags&flag != 0 {
			s[name] = "on"
		}
	}
	if l.AltNames != nil {
		s[AltNames] = strings.Join(slices.Sorted(slices.Values(l.AltNames)), " ")
	}
	for _, a := range l.Attributes {
		name, known := settable[a.Kind]
		switch {
		case known:
			s[name] = hex.EncodeToString(a.Value)
		case a.Kind == unix.IFLA_XDP:
			if err := readXDP(a, s); err != nil {
				return nil, err
			}
		case leftOut[a.Kind] == "":
			s[fmt.Sprintf("rtnetlink-%d", a.Kind)] = short(a.Value)
		}
	}
	return s, nil
}

// short encodes a value, or its hash if it is long. No long value is one that harms the next pod.
func short(value []byte) string {
	if len(value) > 128 {
		hash := sha256.Sum256(value)
		return "sha256:" + hex.EncodeToString(hash[:])
	}
	return hex.EncodeToString(value)
}

// hashKind returns the kind of a hash that [short] has made, or "".
func hashKind(value string) string { return value[:strings.Index(value, ":")+1] }

// Harmless returns the settings with the values of a new interface for those that would take traffic from the next pod
// or show it to somebody else.
func (s Dump) Harmless() Dump {
	h := maps.Clone(s)
	maps.DeleteFunc(h, func(name, _ string) bool {
		return slices.Contains([]string{"noarp", "promisc", "allmulti"}, name) || xdpModes[name].flag != 0 || tcxPoints[name] != 0
	})
	h["multicast"] = "on"
	if h["mode"] != "" {
		h["mode"] = "00"
	}
	return h
}
