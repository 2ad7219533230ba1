package settings

import (
	"cmp"
	"fmt"

	"devinfo-cni.io/pkg/host/rtnetlink"
)

// Spoilt is a hardware interface in the current network namespace with settings that stop the traffic of most pods.
// Only its present settings say so: an administrator may have wanted them.
type Spoilt struct {
	Device string   `json:"device"` // PCI address
	Name   string   `json:"name"`
	Left   []string `json:"left"` // "ARP off", "mode 1", "xdp program 7"
	Undo   []string `json:"undo"` // arguments of ip link set: "arp on", "mode default", "xdp off"
}

// ListSpoilt lists such interfaces.
func ListSpoilt() (list []Spoilt, err error) {
	c, err := rtnetlink.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	answers, err := c.Links(rtnetlink.SkipStats)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, answer := range answers {
		l, err := rtnetlink.ParseLink(answer, rtnetlink.Local)
		if err != nil {
			return nil, err
		}
		one := Spoilt{Device: cmp.Or(l.Parent, c.BusInfo(l.Name)), Name: l.Name}
		now, err := dump(answer)
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
func (s Dump) Spoilt() (left, undo []string) {
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
