package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/host/link"
)

// Withhold sets what the containers of the pods do not get of each attachment's device, by the rules that ADD, devinfo-agent
// and cni-dra-driver follow when they give device nodes and sockets. It returns the first read error, and each attachment has
// its own.
func (n *Node) Withhold(list []Attachment) (failed error) {
	for i := range list {
		a := &list[i]
		info, err := devinfo.Parse(a.DeviceInfo)
		if err != nil || a.State != check.OK {
			continue
		}
		if a.Withheld, err = n.withheld(a, info); err != nil && !errors.Is(err, link.ErrNoNetns) && !errors.Is(err, fs.ErrPermission) {
			a.Withheld = []view.Withheld{{Device: "device nodes", Why: "unknown: " + n.text(err.Error()), Remedy: "correct what the error names"}}
			failed = cmp.Or(failed, fmt.Errorf("device nodes of %s: %w", a, err))
		}
	}
	return failed
}

// withheld judges device nodes by the policy only, because this process may see another /dev than the agent does, and sockets
// only on the host itself.
func (n *Node) withheld(a *Attachment, info *devinfo.Info) (list []view.Withheld, err error) {
	g := grant.Granter{Sys: n.Finder.Sys, Settings: n.Settings, Nodes: func(name string) (cdispec.DeviceNode, error) { return cdispec.DeviceNode{Path: name}, nil }}
	if at, ok := a.Place(); ok && !a.node.Shared() {
		g.Claimed = at.Name
		if at.Bus != "net" {
			g.DeviceIDs = []config.NamedID{{Key: "device", ID: at.Name}}
		}
	}
	if e := a.entry; e != nil && !e.ByClaim() {
		args, _ := pod.ParseArgs(e.Args) // ADD has skipped the same pairs
		g.Pod = pod.Identity{UID: args.UID(), ContainerID: e.ContainerID}
		g.SocketDir, g.DeviceIDs = e.HostSocketDir(), e.Requested.DeviceIDs
		g.Leased = func(id string) bool { return n.journal.Has(e, id, 0) }
	} else if a.record == "" { // this process does not see the driver's records
		return nil, nil
	}
	isSocket := discovery.IsSocket(info.Type)
	if isSocket && (n.Root != "" || g.Leased == nil) {
		return nil, nil
	}
	given := func() (grant.Grant, error) { return g.ForInterface(n.Finder, a.Netns, a.Interface, info) }
	if !isSocket && a.CDI == "" && a.record == "" && !n.Settings.InjectDeviceNodes {
		g.Settings.AllowedDevices = []string{"*"}
		if most, err := given(); err != nil || len(most.Nodes) == 0 {
			return nil, err
		}
		return []view.Withheld{{Device: "device nodes", Why: "devinfo-agent gives none on this node", Remedy: "set injectDeviceNodes in the node settings, unless a device plugin gives them"}}, nil
	}
	granted, err := given()
	for _, r := range granted.Refusals {
		w := view.Withheld{Device: r.Device, Why: r.Why, Remedy: r.Remedy}
		if isSocket {
			w.Mounts = cmp.Or(g.SocketDir, path.Dir(a.Device))
		}
		list = append(list, w)
	}
	if isSocket {
		list = append(list, noSocket(cmp.Or(g.SocketDir, path.Dir(a.Device)), a.Device)...)
	}
	return list, err
}

// noSocket returns a socket that does not exist, although its directory on the host does.
func noSocket(dir, socket string) []view.Withheld {
	at := path.Join(dir, path.Base(socket))
	_, err := os.Lstat(at)
	if _, there := os.Stat(dir); there != nil || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return []view.Withheld{{
		Device: "the socket " + socket, Why: at + " does not exist on the node",
		Remedy: "start the side that creates it, the switch or the container, or look into its log",
	}}
}
