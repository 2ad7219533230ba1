package journal

import (
	"fmt"
	"strings"
	"time"
)

// A Holder is who has a lease: an attachment, a claim, or a network namespace that
// sriov-cni has given the device to.
type Holder struct {
	Entry *Entry // nil = not an attachment; one of a newer build has its Key alone
	Claim *Claim // nil = not a claim
	Netns string // of sriov-cni's lock
	Mode  Mode
}

// String names the pod, the network or the claim.
func (h Holder) String() string {
	switch {
	case h.Claim != nil:
		return "claim " + h.Claim.Namespace + "/" + h.Claim.Name
	case h.Entry == nil:
		return "network namespace " + h.Netns + " (by sriov-cni)"
	}
	who := "container " + h.Entry.ContainerID
	if namespace, name := h.Entry.PodName(); name != "" {
		who = "pod " + namespace + "/" + name
	}
	return fmt.Sprintf("%s (%s, network %s)", who, h.Entry.IfName, h.Entry.Network)
}

// Since is when the holder got it; zero = unknown.
func (h Holder) Since() time.Time {
	switch {
	case h.Claim != nil:
		return h.Claim.Time
	case h.Entry != nil:
		return h.Entry.Time
	}
	return time.Time{}
}

// A HeldError says that somebody else has a lease that keeps the caller from its own.
type HeldError struct {
	Kind   Kind
	ID     string // as the lease has it: a file's name, a directory's path, a device's ID
	Part   string // the device that was asked for, if it is a part of ID; else ""
	Holder Holder
}

func (e *HeldError) Error() string {
	if e.Kind != OfDevice {
		return fmt.Sprintf("%s %s: belongs to attachment %s", e.Kind, e.ID, e.Holder.Entry.Key)
	}
	text := "device " + DeviceName(e.ID)
	if e.Part != "" {
		text += ", which " + DeviceName(e.Part) + " is a part of"
	}
	text += ": is held by " + e.Holder.String()
	if since := e.Holder.Since(); !since.IsZero() {
		text += ", since " + since.UTC().Format("2006-01-02 15:04:05 MST")
	}
	return text
}

// DeviceName is what people and plugins call the device of an ID: a PCI address, or the
// name on its bus.
func DeviceName(id string) string {
	if bus, name, ok := strings.Cut(id, "-"); ok && bus != "iommu" {
		return name
	}
	return "IOMMU group " + strings.TrimPrefix(id, "iommu-")
}

// A taker is who takes or has leases, by the name of its links.
type taker struct {
	link   string   // name of the link: an entry's, or a claim's UID
	target string   // of the link, from the state directory
	pods   []string // whose attachments and claims do not keep it out
	netns  string   // sriov-cni's lock for it is its own
}

func (e *Entry) holder() (taker, error) {
	name, err := e.entry()
	h := taker{link: name, target: "attachments/" + name, netns: e.Netns}
	if e.Pod != "" {
		h.pods = []string{e.Pod}
	}
	return h, err
}
