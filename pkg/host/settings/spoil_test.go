package settings_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpf "github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/test/difftest"
)

// A spoiler changes something of the interface in the pod. spoil reports whether the kernel accepted any change.
type spoiler struct {
	name  string
	spoil func(index int) bool
}

// setLink changes an interface, and reports whether the kernel accepted it.
func setLink(index int, msg *nl.IfInfomsg, attrs ...*nl.RtAttr) bool {
	c := rtnetlink.Dial()
	defer c.Close()
	return c.SetLink(index, msg, attrs...) == nil
}

// values are the values that spoilers try for each attribute of the kernel.
func values() [][]byte {
	list := [][]byte{{0}, {1}, {2, 0, 0, 0, 0, 9}, []byte("spoilt\x00")}
	for _, n := range []uint32{0, 1, 2, 3, 7, 2000, 1 << 31} {
		list = append(list, binary.NativeEndian.AppendUint32(nil, n))
	}
	return list
}

// spoilers try each flag and each attribute of RTM_SETLINK, and each attribute of each request of ethtool.
func spoilers(t *testing.T) (list []spoiler) {
	for bit := range 32 {
		list = append(list, spoiler{fmt.Sprintf("flag %d", bit), func(index int) bool {
			l, err := netlink.LinkByIndex(index)
			must(t, err)
			msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
			msg.Change, msg.Flags = 1<<bit, ^l.Attrs().RawFlags&(1<<bit)
			return setLink(index, msg)
		}})
	}
	moves := []int{unix.IFLA_IFNAME, unix.IFLA_NET_NS_PID, unix.IFLA_NET_NS_FD, unix.IFLA_TARGET_NETNSID, unix.IFLA_NEW_IFINDEX}
	for kind := 1; kind < 128; kind++ {
		if slices.Contains(moves, kind) { // the interface would not be found afterwards
			continue
		}
		for _, value := range values() {
			list = append(list, spoiler{fmt.Sprintf("rtnetlink %d", kind), func(index int) bool {
				return setLink(index, nl.NewIfInfomsg(unix.AF_UNSPEC), nl.NewRtAttr(kind, value))
			}})
		}
	}
	family, err := netlink.GenlFamilyGet("ethtool")
	must(t, err)
	for _, op := range family.Ops {
		if op.Flags&unix.GENL_CMD_CAP_DUMP != 0 || op.Flags&unix.GENL_UNS_ADMIN_PERM == 0 {
			continue
		}
		for kind := 2; kind < 32; kind++ {
			bitset := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
			bitset.AddRtAttr(unix.ETHTOOL_A_BITSET_SIZE, nl.Uint32Attr(32))
			bitset.AddRtAttr(unix.ETHTOOL_A_BITSET_VALUE, nl.Uint32Attr(0))
			bitset.AddRtAttr(unix.ETHTOOL_A_BITSET_MASK, nl.Uint32Attr(1<<14|1)) // GRO and scatter-gather, of the features
			attrs := []*nl.RtAttr{bitset}
			for _, value := range values() {
				attrs = append(attrs, nl.NewRtAttr(kind, value))
			}
			for _, a := range attrs {
				list = append(list, spoiler{fmt.Sprintf("ethtool %d.%d", op.ID, kind), func(index int) bool {
					req := settings.EthtoolRequest(family.ID, index, uint8(op.ID), unix.ETHTOOL_FLAG_OMIT_REPLY, unix.NLM_F_ACK)
					req.AddData(a)
					_, err := req.Execute(unix.NETLINK_GENERIC, 0)
					return err == nil
				}})
			}
		}
	}
	return append(list, programs()...)
}

// kept are the BPF links of a process that lives longer than the pod.
var kept []bpf.Link

// programs attach a BPF program that drops all packets, by netlink, by bpf(2), and by a link that a process keeps.
func programs() (list []spoiler) {
	load := func(kind ebpf.ProgramType) *ebpf.Program {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}}) // XDP_DROP
		if err != nil {
			return nil
		}
		return p
	}
	if load(ebpf.XDP) == nil {
		return nil // this user may load no programs
	}
	for name, flags := range map[string]int{"xdp generic": nl.XDP_FLAGS_SKB_MODE, "xdp native": nl.XDP_FLAGS_DRV_MODE} {
		list = append(list, spoiler{name, func(index int) bool {
			l, err := netlink.LinkByIndex(index)
			return err == nil && netlink.LinkSetXdpFdWithFlags(l, load(ebpf.XDP).FD(), flags) == nil
		}}, spoiler{name + " link", func(index int) bool {
			options := bpf.XDPOptions{Program: load(ebpf.XDP), Interface: 1, Flags: bpf.XDPAttachFlags(flags)}
			other, _ := bpf.AttachXDP(options) // of lo, which stays in the pod
			options.Interface = index
			l, err := bpf.AttachXDP(options)
			kept = append(kept, l, other)
			return err == nil
		}})
	}
	return append(list, spoiler{"tcx", func(index int) bool {
		return bpf.RawAttachProgram(bpf.RawAttachProgramOptions{Target: index, Program: load(ebpf.SchedCLS), Attach: ebpf.AttachTCXIngress}) == nil
	}}, spoiler{"tcx link", func(index int) bool {
		l, err := bpf.AttachTCX(bpf.TCXOptions{Program: load(ebpf.SchedCLS), Interface: index, Attach: ebpf.AttachTCXIngress})
		kept = append(kept, l)
		return err == nil
	}}, spoiler{"qdisc", func(index int) bool {
		return netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0)}}) == nil
	}}, spoiler{"/proc/sys/net", func(index int) (done bool) {
		for name, text := range sysctls("nic") {
			if name := filepath.Join("/proc/sys/net", name); os.WriteFile(name, []byte("1"+strings.TrimSpace(text)), 0) == nil || os.WriteFile(name, []byte("1"), 0) == nil {
				done = true
			}
		}
		return done
	}})
}

// sysctls reads the parameters of an interface below /proc/sys/net.
func sysctls(name string) map[string]string {
	all := map[string]string{}
	files, _ := filepath.Glob("/proc/sys/net/ipv[46]/*/" + name + "/*")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			all[strings.TrimPrefix(file, "/proc/sys/net/")] = string(text)
		}
	}
	return all
}

// observe returns everything that the kernel reports of an interface, independently of [settings.Dump].
func observe(t *testing.T, index int) map[string]string {
	t.Helper()
	l, err := netlink.LinkByIndex(index)
	must(t, err)
	all := sysctls(l.Attrs().Name)
	c := rtnetlink.Dial()
	defer c.Close()
	answer, err := c.Get(rtnetlink.Local, index, rtnetlink.SkipStats)
	must(t, err)
	for bit := range 32 {
		all[fmt.Sprintf("flag %d", bit)] = fmt.Sprint(answer.Flags >> bit & 1)
	}
	for _, a := range answer.Attributes {
		if a.Kind != unix.IFLA_STATS && a.Kind != unix.IFLA_STATS64 {
			all[fmt.Sprintf("rtnetlink %d", a.Kind)] = fmt.Sprintf("%x", a.Value)
		}
	}
	family, err := netlink.GenlFamilyGet("ethtool")
	must(t, err)
	for _, op := range family.Ops {
		if op.Flags&unix.GENL_CMD_CAP_DUMP == 0 {
			continue
		}
		if answers, err := settings.EthtoolRequest(family.ID, index, uint8(op.ID), 0, 0).Execute(unix.NETLINK_GENERIC, 0); err == nil {
			all[fmt.Sprintf("ethtool %d", op.ID)] = fmt.Sprintf("%x", answers)
		}
	}
	qdiscs, err := netlink.QdiscList(l)
	must(t, err)
	for _, q := range qdiscs {
		all["qdisc "+q.Type()] = q.Attrs().String()
	}
	if attached, err := bpf.QueryPrograms(bpf.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress}); err == nil {
		all["tcx"] = fmt.Sprint(len(attached.Programs))
	}
	return all
}

// effects is observe without what the kernel sets some time after an interface is up, which is no effect of a spoiler.
func effects(t *testing.T, index int) map[string]string {
	t.Helper()
	all := observe(t, index)
	for _, name := range []string{"flag 6", "flag 16", "ethtool 6"} { // RUNNING, LOWER_UP, the link's state
		delete(all, name)
	}
	for _, kind := range []int{unix.IFLA_OPERSTATE, unix.IFLA_CARRIER, unix.IFLA_CARRIER_CHANGES, unix.IFLA_CARRIER_UP_COUNT, unix.IFLA_CARRIER_DOWN_COUNT} {
		delete(all, fmt.Sprint("rtnetlink ", kind))
	}
	return all
}

// putBack restores an interface as package restore does.
func putBack(t *testing.T, before settings.Dump, mtu int, mac []byte) {
	t.Helper()
	k := kernel()
	to := settings.Dump{settings.MTU: settings.Number(uint32(mtu)), settings.MAC: hex.EncodeToString(mac)}
	must(t, k.Set(named(t, "nic"), settings.MTU, to), k.Set(named(t, "nic"), settings.MAC, to))
	for _, what := range before.Unlike(read(t, "nic")) {
		if err := k.Set(named(t, "nic"), what, before); err != nil {
			t.Error(err)
		}
	}
}

// A kernel may have attributes that no table of this package has.
func TestNextPodSeesNothingOfWhatAPodSet(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod := linktest.NewNetns(t)
		linktest.AddVeth(t, "nic", "peer", linktest.NewNetns(t))
		host, err := os.Open("/proc/thread-self/ns/net")
		must(t, err)
		defer host.Close()
		inside, err := os.Open(pod)
		must(t, err)
		defer inside.Close()
		nic, err := netlink.LinkByName("nic")
		must(t, err)
		index := nic.Attrs().Index
		// trip gives the interface to a pod, which calls the spoilers until one has an effect.
		trip := func(spoil ...spoiler) (done int) {
			t.Helper()
			must(t, netlink.LinkSetNsFd(nic, int(inside.Fd())))
			must(t, linktest.InNetns(pod, func() error {
				l, err := netlink.LinkByName("nic")
				must(t, err)
				must(t, netlink.LinkSetUp(l))
				before := effects(t, l.Attrs().Index)
				for done = range spoil {
					if spoil[done].spoil(l.Attrs().Index) && !maps.Equal(effects(t, l.Attrs().Index), before) {
						break
					}
				}
				return netlink.LinkSetNsFd(l, int(host.Fd()))
			}))
			nic, err = netlink.LinkByName("nic")
			must(t, err)
			index = nic.Attrs().Index
			return done
		}
		trip()
		mtu, mac := nic.Attrs().MTU, nic.Attrs().HardwareAddr
		want, before := observe(t, index), read(t, "nic")
		volatile := map[string]bool{} // what a pod that does nothing leaves different
		for range 2 {
			trip()
			for name, value := range observe(t, index) {
				volatile[name] = volatile[name] || value != want[name]
			}
		}
		if left := before.Unlike(read(t, "nic")); left != nil {
			t.Fatalf("a pod that changed nothing left %q", left)
		}
		changed, spoilt := map[string]bool{}, []string(nil)
		for list := spoilers(t); len(list) > 0; {
			n := trip(list...)
			name := list[n].name
			for _, fault := range settings.Usable(settings.Condition{Name: "nic", Dump: read(t, "nic")}) {
				spoilt = append(spoilt, strings.TrimPrefix(fault.Found, "nic has "))
			}
			list = slices.DeleteFunc(list[n+1:], func(s spoiler) bool { return s.name == name })
			for name, value := range observe(t, index) {
				if value != want[name] && !volatile[name] {
					changed[name] = true
				}
			}
			putBack(t, before, mtu, mac)
			trip() // the kernel makes some settings anew when the interface moves
			for what, value := range observe(t, index) {
				if value != want[what] && !volatile[what] {
					t.Errorf("after %s, the next pod sees %s: %s, before %q", name, what, value, want[what])
					want[what] = value
				}
			}
		}
		if got := slices.Sorted(maps.Keys(changed)); len(got) < 12 {
			t.Errorf("the pods could only change %q", got)
		} else {
			t.Logf("pods changed %q", got)
		}
		difftest.Equal(t, slices.Compact(spoilt)[:3], []string{"ARP off", "multicast off", "mode 1"})
		if diff := cmp.Diff(before, read(t, "nic")); diff != "" {
			t.Error(diff)
		}
	})
}
