package link

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Settings are everything that the kernel reports of an interface and that remains when it moves to another network
// namespace, without its name, MTU and MAC. The keys are names of settings: see [Settings.Unlike]. The values are the
// netlink attributes in hexadecimal, so that a setting that this package does not know, such as one of a newer
// kernel, is compared too.
type Settings map[string]string

// The names of settings with a rule of their own.
const (
	AltNames = "altnames" // the value is a sorted list with spaces
	Ethtool  = "ethtool"  // missing, but for kernels without its netlink interface (before Linux 5.6): "none"
)

// userFlags are the flags that a user can set. The kernel separately counts requests of bridges, macvtaps and packet
// sockets for promisc and allmulti, and changing these flags does not change this count.
var userFlags = map[uint32]string{
	unix.IFF_DEBUG: "debug", unix.IFF_NOTRAILERS: "notrailers", unix.IFF_NOARP: "noarp", unix.IFF_PROMISC: "promisc", unix.IFF_ALLMULTI: "allmulti",
	unix.IFF_MULTICAST: "multicast", unix.IFF_PORTSEL: "portsel", unix.IFF_AUTOMEDIA: "automedia", unix.IFF_DYNAMIC: "dynamic",
}

// settable are the attributes of RTM_NEWLINK that RTM_SETLINK sets.
var settable = map[uint16]string{
	unix.IFLA_BROADCAST: "broadcast", unix.IFLA_TXQLEN: "txqueuelen", unix.IFLA_LINKMODE: "mode", unix.IFLA_IFALIAS: "alias", unix.IFLA_GROUP: "group",
	unix.IFLA_PROTO_DOWN: "protodown", unix.IFLA_GSO_MAX_SEGS: "gso_max_segs", unix.IFLA_GSO_MAX_SIZE: "gso_max_size", unix.IFLA_GRO_MAX_SIZE: "gro_max_size",
	unix.IFLA_GSO_IPV4_MAX_SIZE: "gso_ipv4_max_size", unix.IFLA_GRO_IPV4_MAX_SIZE: "gro_ipv4_max_size",
}

// leftOut are the attributes of RTM_NEWLINK that are no settings, with the reason.
var leftOut = map[uint16]string{
	unix.IFLA_ADDRESS: own, unix.IFLA_IFNAME: own, unix.IFLA_MTU: own, unix.IFLA_ALT_IFNAME: own, unix.IFLA_VFINFO_LIST: own,
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
func (s Settings) Unlike(other Settings) (names []string) {
	for _, a := range []Settings{s, other} {
		for name := range a {
			if s[name] == other[name] || slices.Contains(names, name) {
				continue
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
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(userFlags)), slices.Collect(maps.Values(settable)),
		slices.Collect(maps.Keys(xdpModes())), slices.Collect(maps.Keys(tcxPoints())), []string{AltNames, ethtool[features].name})))
}

// Text returns the value of a setting for people; "none" = it has none.
func (s Settings) Text(setting string) string {
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

// Settings reads the settings of an interface in the current network namespace. If it does not exist, the error is
// [ErrNoInterface].
func (k *Kernel) Settings(i Interface) (s Settings, err error) {
	r, err := dial("")
	if err != nil {
		return s, err
	}
	defer r.socket.Close()
	answers, err := r.links(0, i.Index, rtextFilterSkipStats)
	if errors.Is(err, syscall.ENODEV) {
		err = ErrNoInterface
	}
	if err == nil {
		s, err = settings(answers[0])
	}
	if err == nil {
		readPrograms(i.Index, s)
		err = readEthtool(i.Index, s)
	}
	if err != nil {
		return s, fmt.Errorf("interface %q: read settings: %w", i.Name, err)
	}
	return s, nil
}

// settings parses an RTM_NEWLINK. Its flags are the flags that a user has set. /sys/class/net/*/flags also contains
// flags that only the kernel's count has set (net/core/dev.c, netif_get_flags).
func settings(answer []byte) (s Settings, err error) {
	attrs, err := attributes(answer, unix.SizeofIfInfomsg)
	if err != nil {
		return s, err
	}
	s = Settings{}
	for flag, name := range userFlags {
		if nl.DeserializeIfInfomsg(answer).Flags&flag != 0 {
			s[name] = "on"
		}
	}
	for _, a := range attrs {
		name, known := settable[a.kind]
		switch {
		case known:
			s[name] = hex.EncodeToString(a.value)
		case a.kind == unix.IFLA_PROP_LIST:
			err = readAltNames(a, s)
		case a.kind == unix.IFLA_XDP:
			err = readXDP(a, s)
		case leftOut[a.kind] == "":
			s[fmt.Sprintf("rtnetlink-%d", a.kind)] = short(a.value)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

func readAltNames(a attribute, s Settings) error {
	list, err := attributes(a.value, 0)
	var names []string
	for _, p := range list {
		if p.kind == unix.IFLA_ALT_IFNAME {
			names = append(names, p.text())
		}
	}
	if slices.Sort(names); names != nil {
		s[AltNames] = strings.Join(names, " ")
	}
	return err
}

// short encodes a value, or its hash if it is long. A cryptographic hash would add 150 KB to the plugin, which imports
// this package. No long value is one that harms the next pod.
func short(value []byte) string {
	if len(value) > 128 {
		hash := fnv.New128a()
		_, _ = hash.Write(value) // never fails
		return "fnv128a:" + hex.EncodeToString(hash.Sum(nil))
	}
	return hex.EncodeToString(value)
}

// Set sets one setting of an interface to its value in to. setting is a name that [Settings.Unlike] returns. Use
// [Kernel.SetAltName] for altnames. Set needs CAP_NET_ADMIN.
func (k *Kernel) Set(i Interface, setting string, to Settings) error {
	r, err := dial("")
	if err != nil {
		return err
	}
	defer r.socket.Close()
	if err = r.set(i.Index, setting, to); err != nil {
		return fmt.Errorf("interface %q: set %s: %w", i.Name, setting, err)
	}
	return nil
}

func (r route) set(index int, setting string, to Settings) error {
	switch mode, is := xdpModes()[setting]; {
	case is:
		return r.detachXDP(index, mode, to[setting])
	case tcxPoints()[setting] != 0:
		return detach(index, tcxPoints()[setting], to[setting])
	case ethtoolCommand(setting) != 0:
		return setEthtool(index, ethtoolCommand(setting), to[setting])
	}
	for flag, of := range userFlags {
		if of == setting {
			msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
			if msg.Change = flag; to[setting] != "" {
				msg.Flags = flag
			}
			return r.setlink(index, msg)
		}
	}
	for kind, of := range settable {
		if of == setting {
			value, err := hex.DecodeString(to[setting])
			if err != nil {
				return err
			}
			return r.setlink(index, nl.NewIfInfomsg(unix.AF_UNSPEC), nl.NewRtAttr(int(kind), value))
		}
	}
	return errors.New("devinfo does not know how")
}

func (r route) setlink(index int, msg *nl.IfInfomsg, attrs ...*nl.RtAttr) error {
	msg.Index = int32(index)
	req := r.request(unix.RTM_SETLINK, msg, attrs...)
	req.Flags |= unix.NLM_F_ACK
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// Spoilt is a hardware interface in the current network namespace with settings that stop the traffic of most pods.
// Only its present settings say so: an administrator may have wanted them.
type Spoilt struct {
	Device string   `json:"device"` // PCI address
	Name   string   `json:"name"`
	Left   []string `json:"left"` // "ARP off", "mode 1", "xdp program 7"
	Undo   []string `json:"undo"` // arguments of ip link set: "arp on", "mode default", "xdp off"
}

// Spoilt lists such interfaces.
func (Recorder) Spoilt() (list []Spoilt, err error) {
	r, err := dial("")
	if err != nil {
		return nil, err
	}
	defer r.socket.Close()
	answers, err := r.links(unix.NLM_F_DUMP, 0, rtextFilterSkipStats)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, answer := range answers {
		f, err := parse(answer, local)
		if err != nil {
			return nil, err
		}
		one := Spoilt{Device: cmp.Or(f.Parent, r.busInfo(f.Name)), Name: f.Name}
		now, err := settings(answer)
		if err != nil {
			return nil, err
		}
		if one.Left, one.Undo = now.Spoilt(); one.Left != nil && one.Device != "" {
			list = append(list, one)
		}
	}
	return list, nil
}

// Spoilt returns the settings that stop traffic, and how to undo them: see [Spoilt].
func (s Settings) Spoilt() (left, undo []string) {
	add := func(is bool, what, how string) {
		if is {
			left, undo = append(left, what), append(undo, how)
		}
	}
	add(s["noarp"] != "", "ARP off", "arp on")
	add(s["multicast"] == "", "multicast off", "multicast on")
	add(s["mode"] != "" && s.Text("mode") != "0", "mode "+s.Text("mode"), "mode default")
	for _, mode := range []string{"xdp", "xdpgeneric", "xdpoffload"} {
		add(s[mode] != "", mode+" "+s[mode], mode+" off")
	}
	return left, undo
}
