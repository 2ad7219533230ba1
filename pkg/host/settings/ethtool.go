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
	unix.ETHTOOL_MSG_STRSET_GET:   {why: "names"},
	unix.ETHTOOL_MSG_LINKINFO_GET: {"linkinfo", []uint16{unix.ETHTOOL_A_LINKINFO_PORT, unix.ETHTOOL_A_LINKINFO_TP_MDIX}, "port and crossover follow from the cable"},
	unix.ETHTOOL_MSG_LINKMODES_GET: {"linkmodes", []uint16{
		unix.ETHTOOL_A_LINKMODES_PEER, unix.ETHTOOL_A_LINKMODES_SPEED, unix.ETHTOOL_A_LINKMODES_DUPLEX, unix.ETHTOOL_A_LINKMODES_MASTER_SLAVE_STATE,
		unix.ETHTOOL_A_LINKMODES_LANES, unix.ETHTOOL_A_LINKMODES_RATE_MATCHING,
	}, "speed, duplex and lanes follow from the link partner"},
	unix.ETHTOOL_MSG_LINKSTATE_GET: {why: "follows from the link partner"},
	unix.ETHTOOL_MSG_DEBUG_GET:     {name: "msglvl"},
	unix.ETHTOOL_MSG_WOL_GET:       {name: "wol"},
	unix.ETHTOOL_MSG_FEATURES_GET: {"features", []uint16{unix.ETHTOOL_A_FEATURES_HW, unix.ETHTOOL_A_FEATURES_ACTIVE, unix.ETHTOOL_A_FEATURES_NOCHANGE},
		"possible and active features follow from the wanted ones"},
	unix.ETHTOOL_MSG_PRIVFLAGS_GET:     {name: "private-flags"},
	unix.ETHTOOL_MSG_RINGS_GET:         {name: "rings"},
	unix.ETHTOOL_MSG_CHANNELS_GET:      {name: "channels"},
	unix.ETHTOOL_MSG_COALESCE_GET:      {name: "coalesce"},
	unix.ETHTOOL_MSG_PAUSE_GET:         {name: "pause"},
	unix.ETHTOOL_MSG_EEE_GET:           {"eee", []uint16{unix.ETHTOOL_A_EEE_MODES_PEER, unix.ETHTOOL_A_EEE_ACTIVE}, "follows from the link partner"},
	unix.ETHTOOL_MSG_TSINFO_GET:        {why: "abilities of the driver"},
	unix.ETHTOOL_MSG_TUNNEL_INFO_GET:   {why: "follows from the tunnels of the node"},
	unix.ETHTOOL_MSG_FEC_GET:           {"fec", []uint16{4}, "follows from the link partner"},
	unix.ETHTOOL_MSG_MODULE_EEPROM_GET: {why: "memory of the transceiver"},
	unix.ETHTOOL_MSG_STATS_GET:         {why: "counts"},
	unix.ETHTOOL_MSG_PHC_VCLOCKS_GET:   {why: "clocks of other programs"},
	unix.ETHTOOL_MSG_MODULE_GET:        {"module", []uint16{3}, "follows from the policy"},
	unix.ETHTOOL_MSG_PSE_GET:           {why: "measured power"},
	unix.ETHTOOL_MSG_RSS_GET:           {name: "rss"},
	unix.ETHTOOL_MSG_PLCA_GET_CFG:      {name: "plca"},
	unix.ETHTOOL_MSG_PLCA_GET_STATUS:   {why: "state of the bus"},
	unix.ETHTOOL_MSG_MM_GET:            {"mm", []uint16{4, 8}, "follows from the link partner"},
	unix.ETHTOOL_MSG_PHY_GET:           {why: "the PHY does not change"},
	unix.ETHTOOL_MSG_TSCONFIG_GET:      {name: "tsconfig"},
}

const ethtoolHeader = 1 // attribute of each message

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

// readEthtool adds the answers of all requests. If the interface does not exist, the error is [rtnetlink.ErrNoInterface].
func readEthtool(c rtnetlink.Conn, index int, s Dump) error {
	family, err := netlink.GenlFamilyGet("ethtool")
	if errors.Is(err, syscall.ENOENT) {
		s[Ethtool] = "none"
		return nil
	}
	if err != nil {
		return err
	}
	socket, err := nl.Subscribe(unix.NETLINK_GENERIC)
	if err != nil {
		return err
	}
	defer socket.Close()
	sockets := map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: {Socket: socket}}
	return readAnswers(family.Ops, func(command uint8) ([]rtnetlink.Attribute, error) {
		attrs, err := askEthtool(sockets, family.ID, index, command)
		if errors.Is(err, syscall.ENODEV) { // also of a driver without a PHY
			if _, gone := c.Get(rtnetlink.Local, index, rtnetlink.SkipStats); gone != nil {
				return nil, gone
			}
		}
		return attrs, err
	}, s)
}

// ofDriver reports whether a driver may have returned an error, rather than this process or the kernel lacking something or the
// answer being broken.
func ofDriver(err error) bool {
	others := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EINTR, syscall.EBADMSG}
	return errors.As(err, new(syscall.Errno)) && !slices.ContainsFunc(others, func(other error) bool { return errors.Is(err, other) })
}

// readAnswers adds the answers to all requests that read settings. A driver has no answer to many of them. Other errors are
// returned, because a setting without an answer is not restored.
func readAnswers(ops []netlink.GenlOp, ask func(command uint8) ([]rtnetlink.Attribute, error), s Dump) error {
	for _, op := range ops {
		command := uint8(op.ID)
		known, is := ethtool[command]
		name := known.name
		if !is {
			name = fmt.Sprintf("%s-%d", Ethtool, command)
		}
		if op.Flags&unix.GENL_CMD_CAP_DUMP == 0 || name == "" {
			continue
		}
		attrs, err := ask(command)
		if err != nil && !ofDriver(err) {
			return fmt.Errorf("%s: %w", name, err)
		}
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
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(index)))
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_FLAGS, nl.Uint32Attr(uint32(flags)))
	req.AddData(header)
	return req
}

// askEthtool returns the answer without its header. Without sockets, the request opens one.
func askEthtool(sockets map[int]*nl.SocketHandle, family uint16, index int, command uint8) ([]rtnetlink.Attribute, error) {
	req := ethtoolRequest(family, index, command, unix.ETHTOOL_FLAG_COMPACT_BITSETS, 0)
	req.Sockets = sockets
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
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
	now, err := askEthtool(nil, family.ID, index, command)
	if err != nil {
		return err
	}
	req := ethtoolRequest(family.ID, index, command+1, unix.ETHTOOL_FLAG_OMIT_REPLY, unix.NLM_F_ACK)
	for _, a := range wanted {
		switch is, there := byKind(now)[a.Kind]; {
		case there && string(a.Raw) == string(is.Raw):
		case there && command == unix.ETHTOOL_MSG_FEATURES_GET && a.Kind == unix.ETHTOOL_A_FEATURES_WANTED:
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
	const size, value, mask = unix.ETHTOOL_A_BITSET_SIZE, unix.ETHTOOL_A_BITSET_VALUE, unix.ETHTOOL_A_BITSET_MASK
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
