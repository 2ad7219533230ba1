package settings

import (
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/rtnetlink"
)

// ethtool describes the requests of ethtool's netlink interface that read an interface (linux/ethtool_netlink.h). All
// others of the kernel are read too, as "ethtool-N". The number of the request that sets a setting is one higher.
var ethtool = map[uint8]struct {
	name string   // "" = the answer contains no settings
	skip []uint16 // attributes that are no settings
	why  string   // why the attributes or the request are left out
}{
	1:        {why: "names"},
	2:        {"linkinfo", []uint16{2, 4}, "port and crossover follow from the cable"},
	4:        {"linkmodes", []uint16{4, 5, 6, 8, 9, 10}, "speed, duplex and lanes follow from the link partner"},
	6:        {why: "follows from the link partner"},
	7:        {name: "msglvl"},
	9:        {name: "wol"},
	features: {"features", []uint16{2, 4, 5}, "possible and active features follow from the wanted ones"},
	13:       {name: "private-flags"},
	15:       {name: "rings"},
	17:       {name: "channels"},
	19:       {name: "coalesce"},
	21:       {name: "pause"},
	23:       {"eee", []uint16{3, 4}, "follows from the link partner"},
	25:       {why: "abilities of the driver"},
	28:       {why: "follows from the tunnels of the node"},
	29:       {"fec", []uint16{4}, "follows from the link partner"},
	31:       {why: "memory of the transceiver"},
	32:       {why: "counts"},
	33:       {why: "clocks of other programs"},
	34:       {"module", []uint16{3}, "follows from the policy"},
	36:       {why: "measured power"},
	38:       {name: "rss"},
	39:       {name: "plca"},
	41:       {why: "state of the bus"},
	42:       {"mm", []uint16{4, 8}, "follows from the link partner"},
	45:       {why: "the PHY does not change"},
	46:       {name: "tsconfig"},
}

const (
	features       = 11 // ETHTOOL_MSG_FEATURES_GET
	featuresWanted = 3  // ETHTOOL_A_FEATURES_WANTED

	ethtoolHeader  = 1 // attribute of each message
	compactBitsets = 1 // ETHTOOL_FLAG_COMPACT_BITSETS
	omitReply      = 2 // ETHTOOL_FLAG_OMIT_REPLY
	canDump        = 4 // GENL_CMD_CAP_DUMP: all requests that read an interface have it
)

// ethtoolCommand returns the request that reads a setting of ethtool; 0 = it is not ethtool's.
func ethtoolCommand(setting string) (command uint8) {
	for n, m := range ethtool {
		if m.name == setting && setting != "" {
			return n
		}
	}
	_, _ = fmt.Sscanf(setting, "ethtool-%d", &command)
	return command
}

// readEthtool adds the answers of all requests. A driver has no answer to many of them.
func readEthtool(index int, s Dump) error {
	family, err := netlink.GenlFamilyGet("ethtool")
	if errors.Is(err, syscall.ENOENT) {
		s[Ethtool] = "none"
		return nil
	}
	if err != nil {
		return err
	}
	for _, op := range family.Ops {
		command := uint8(op.ID)
		known, is := ethtool[command]
		name := known.name
		if !is {
			name = fmt.Sprintf("%s-%d", Ethtool, command)
		}
		if op.Flags&canDump == 0 || name == "" {
			continue
		}
		attrs, _ := askEthtool(family.ID, index, command)
		var value []byte
		for _, a := range attrs {
			if !slices.Contains(known.skip, a.Kind) {
				value = append(value, a.Padded()...)
			}
		}
		if value != nil {
			s[name] = short(value)
		}
	}
	return nil
}

func ethtoolRequest(family uint16, index int, command uint8, flags, ack int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(int(family), ack)
	req.AddData(&nl.Genlmsg{Command: command, Version: 1})
	header := nl.NewRtAttr(ethtoolHeader|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(1, nl.Uint32Attr(uint32(index))) // ETHTOOL_A_HEADER_DEV_INDEX
	header.AddRtAttr(3, nl.Uint32Attr(uint32(flags))) // ETHTOOL_A_HEADER_FLAGS
	req.AddData(header)
	return req
}

// askEthtool returns the answer without its header.
func askEthtool(family uint16, index int, command uint8) ([]rtnetlink.Attribute, error) {
	answers, err := ethtoolRequest(family, index, command, compactBitsets, 0).Execute(unix.NETLINK_GENERIC, 0)
	if err != nil || len(answers) == 0 {
		return nil, err
	}
	attrs, err := rtnetlink.Attributes(answers[0], nl.SizeofGenlmsg)
	return slices.DeleteFunc(attrs, func(a rtnetlink.Attribute) bool { return a.Kind == ethtoolHeader }), err
}

// setEthtool sends the attributes of a former answer that differ now.
func setEthtool(index int, command uint8, to string) error {
	family, err := netlink.GenlFamilyGet("ethtool")
	if err != nil {
		return err
	}
	raw, err := hex.DecodeString(to)
	if err != nil {
		return errors.New("only the hash of its value is known")
	}
	wanted, err := rtnetlink.Attributes(raw, 0)
	if err != nil {
		return err
	}
	now, err := askEthtool(family.ID, index, command)
	if err != nil {
		return err
	}
	req := ethtoolRequest(family.ID, index, command+1, omitReply, unix.NLM_F_ACK)
	for _, a := range wanted {
		switch is, there := byKind(now)[a.Kind]; {
		case there && string(a.Raw) == string(is.Raw):
		case there && command == features && a.Kind == featuresWanted:
			req.AddRawData(changedBits(a, is))
		default:
			req.AddRawData(a.Padded())
		}
	}
	_, err = req.Execute(unix.NETLINK_GENERIC, 0)
	return err
}

// changedBits returns a bitset that sets only the bits that differ, because the kernel refuses a request for features
// that no user can set.
func changedBits(to, now rtnetlink.Attribute) []byte {
	const size, value, mask = 2, 4, 5 // ETHTOOL_A_BITSET_*
	attrs, _ := rtnetlink.Attributes(to.Value, 0)
	others, _ := rtnetlink.Attributes(now.Value, 0)
	wanted, has := byKind(attrs), byKind(others)
	differ := slices.Clone(wanted[value].Value)
	subtle.XORBytes(differ, differ, has[value].Value)
	bits := nl.NewRtAttr(int(to.Kind)|unix.NLA_F_NESTED, nil)
	bits.AddRtAttr(size, wanted[size].Value)
	bits.AddRtAttr(value, wanted[value].Value)
	bits.AddRtAttr(mask, differ)
	return bits.Serialize()
}

// byKind returns attributes that occur once.
func byKind(list []rtnetlink.Attribute) map[uint16]rtnetlink.Attribute {
	all := map[uint16]rtnetlink.Attribute{}
	for _, a := range list {
		all[a.Kind] = a
	}
	return all
}
