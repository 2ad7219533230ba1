package node

import (
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/view"
)

// A naming is one of the ways to name attachments on the command line. If one is not nil, all matching attachments
// must have the same value of one.
type naming struct {
	named func(a Attachment, name string) bool
	one   func(a Attachment) string // nil = several may match
	what  string
	more  string
}

// namings are tried in this order: pod, network, container, device. The first one that matches is used.
var namings = []naming{
	{named: byPod, one: func(a Attachment) string { return a.Pod }, what: "pods", more: "give the namespace too"},
	{named: func(a Attachment, name string) bool { return name != "" && a.Network == name }},
	{named: byContainer, one: func(a Attachment) string { return a.ContainerID }, what: "containers", more: "give more of the container's ID"},
	{named: func(a Attachment, name string) bool { return len(Holders([]Attachment{a}, name)) > 0 }},
}

// Holders returns the attachments that have, share or name a device: see [view.Named]. A PF's address also finds
// its VFs.
func Holders(list []Attachment, device string) []Attachment {
	is := view.Named(device)
	found := []Attachment{}
	for _, a := range list {
		if is(slices.Concat(a.Has, a.Shares, strings.Split(a.RDMA, ","), []string{a.Device, a.PCI, a.PF, a.Representor})...) {
			found = append(found, a)
		}
	}
	return found
}

// Choose returns the attachments of the pod, network, container or device with this name, or the one attachment
// that it names. All errors are a [*clierr.Error].
func Choose(list []Attachment, name string) ([]Attachment, error) {
	for _, n := range namings {
		var found []Attachment
		var of, names []string
		for _, a := range list {
			if !n.named(a, name) {
				continue
			}
			found, names = append(found, a), append(names, a.String())
			if n.one != nil && !slices.Contains(of, n.one(a)) {
				of = append(of, n.one(a))
			}
		}
		if n.what == "pods" {
			names = of
		}
		if len(of) > 1 {
			return nil, clierr.Misuse(n.more+": "+strings.Join(names, ", "), "%s: is ambiguous: %d %s match", name, len(of), n.what)
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, clierr.For(fmt.Errorf("%s: no such pod, network, container, attachment or device", name), "devinfoctl list shows them")
}

// byPod matches a pod with or without its namespace, and with the namespace also POD/INTERFACE.
func byPod(a Attachment, name string) bool {
	_, pod, there := strings.Cut(a.Pod, "/")
	return there && (name == pod || name == a.Pod || name == a.Pod+"/"+a.IfName)
}

// byContainer matches NETWORK/CONTAINER/INTERFACE, NETWORK/CONTAINER or CONTAINER, where the container ID may
// be a prefix.
func byContainer(a Attachment, name string) bool {
	parts := strings.SplitN(name, "/", 3)
	switch len(parts) {
	case 1:
		return name != "" && strings.HasPrefix(a.ContainerID, name)
	case 2:
		parts = append(parts, a.IfName)
	}
	return a.Network == parts[0] && strings.HasPrefix(a.ContainerID, parts[1]) && a.IfName == parts[2]
}
