package inventory

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/linkhost"
	"devinfo-cni.io/pkg/sysfs"
)

// Host is what has been read of a machine.
type Host struct {
	hostdev.Host
	// Uplinks are the interfaces that default routes lead to; nil = unknown.
	Uplinks []string
	// Uses says what the host uses interfaces for otherwise: see [link.Recorder.Uses]; nil = unknown.
	Uses map[string]string
}

// Live reads this machine: see [hostdev.Live].
func Live(sys *sysfs.FS) (Host, error) {
	host, err := hostdev.Live(sys)
	if err != nil {
		return Host{}, err
	}
	uplinks, uses, err := link.Recorder{}.Uses()
	return Host{host, append([]string{}, uplinks...), uses}, err
}

// Captured reads a host from its text file.
func Captured(file *hosttxt.Host) (Host, error) {
	links, err := linkhost.New(file)
	if err != nil {
		return Host{}, err
	}
	return Host{hostdev.Host{Sys: sysfs.New(file.Sys()), Links: links.Links, Switches: links}, links.Uplinks, links.Uses}, nil
}

// byName gives the records of the interfaces.
func (h Host) byName() map[string]link.InterfaceRecord {
	all := make(map[string]link.InterfaceRecord, len(h.Links))
	for _, l := range h.Links {
		all[l.Name] = l
	}
	return all
}

// uplinks gives the interfaces that must stay with the host, those of default routes, each with
// the reason.
func (h Host) uplinks() map[string]string {
	why := map[string]string{}
	for _, name := range h.Uplinks {
		why[name] = "has a default route"
	}
	return h.downwards(why)
}

// downwards gives interfaces, each with the reason, and with them what these are made of (ports
// of a bond or bridge, the lower interface of a VLAN), and so on.
//
// Of an Open vSwitch the kernel does not tell which port is on which bridge, so with one of its
// bridges all its ports are.
func (h Host) downwards(of map[string]string) map[string]string {
	why, queue := map[string]string{}, slices.Sorted(maps.Keys(of))
	for _, name := range queue {
		why[name] = name + " " + of[name]
	}
	links := h.byName()
	for len(queue) > 0 {
		upper := links[queue[0]]
		queue = queue[1:]
		below := func(name, how string) {
			if name != "" && why[name] == "" {
				why[name] = fmt.Sprintf("%s %s %s, and %s", name, how, upper.Name, why[upper.Name])
				queue = append(queue, name)
			}
		}
		if upper.Info.Kind != "veth" { // whose link is its peer
			below(upper.Link, "is below")
		}
		for _, l := range h.Links {
			if l.Master != "" && (l.Master == upper.Name || l.Master == ovsSystem && upper.Info.Kind == kindOVS) {
				below(l.Name, "is a port of")
			}
		}
	}
	return why
}

const (
	ovsSystem = "ovs-system"  // the master of all ports of Open vSwitch (net/openvswitch/vport-netdev.c)
	kindOVS   = "openvswitch" // of its bridges, and of other internal ports
)

// links gives the file system below /sys, whose links the library's helpers read.
func (h Host) links() (fs.ReadLinkFS, bool) {
	l, ok := h.Sys.Files().(fs.ReadLinkFS)
	return l, ok
}

// Times are those of [Watch].
type Times struct {
	Settle time.Duration // how long events are gathered: many VFs come one by one
	Poll   time.Duration // after which the host is read, whether or not there was an event
}

// DefaultTimes react to an event within a second, and to a change without one within a
// minute.
func DefaultTimes() Times { return Times{Settle: time.Second, Poll: time.Minute} }

// Watch calls rebuild at once, and then whenever the host may have changed, until ctx
// ends: t.Settle after an event, and t.Poll after it was called last. Events may end
// (the channel is closed): then polling goes on.
func Watch(ctx context.Context, events <-chan struct{}, t Times, rebuild func(context.Context)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	settling := false
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-events:
			if !open {
				events = nil
			}
			if !settling { // further events do not put it off
				settling = true
				timer.Reset(t.Settle)
			}
		case <-timer.C:
			settling = false
			rebuild(ctx)
			timer.Reset(t.Poll)
		}
	}
}
