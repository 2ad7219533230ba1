package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/core/view"
)

// Attachment is a journal entry or an attachment in a claim's record, with its present state.
type Attachment struct {
	Identity
	Type   string              `json:"type,omitempty"`
	Device string              `json:"device,omitempty"` // leased PCI address, vDPA device, SF or socket; without a lease, the one in the device information
	Lease  journal.SharingMode `json:"lease,omitempty"`  // mode of the lease of Device; "" = no lease, so other pods may use the device
	Facts
	File  string     `json:"file,omitempty"` // path of the device-info file; "" = ADD wrote none
	CDI   string     `json:"cdi,omitempty"`  // the CDI device, vendor/class=name
	Netns string     `json:"netns,omitempty"`
	Since *time.Time `json:"since,omitempty"` // time of ADD
	Why   string     `json:"why,omitempty"`   // more about the state, or why ADD found no device

	Has     []string    `json:"-"` // devices with an exclusive lease
	Shares  []string    `json:"-"` // devices with a shared lease
	Verdict *Comparison `json:"-"` // the comparison that set State and Why; nil = none yet

	entry  *journal.Entry    // nil = not in the journal, or unreadable
	unread error             // read error of the entry
	record string            // path of the claim's record; "" = not by DRA
	node   *state.NodeDevice // the claim's device; nil = not a device of the node
}

// Facts are further facts of the attachment's device, most as ADD recorded them. "" means that the device has no such name
// or that ADD wrote no file.
type Facts struct {
	PCI         string `json:"pci,omitempty"`         // address behind a vDPA device
	PF          string `json:"pf,omitempty"`          // PCI address of the PF
	Representor string `json:"representor,omitempty"` // its present name after [Node.Judge]
	RDMA        string `json:"rdma,omitempty"`        // devices, comma-joined

	DeviceInfo json.RawMessage `json:"deviceInfo,omitempty"` // as ADD wrote it
	Withheld   []view.Withheld `json:"withheld,omitempty"`   // see [Node.Withhold]
}

func factsOf(raw json.RawMessage) Facts {
	info, err := devinfo.Parse(raw)
	if err != nil {
		return Facts{}
	}
	of := view.Of(info)
	return Facts{of.PCI, of.PF, of.Representor, of.RDMA, raw, nil}
}

// An Identity names an attachment and its state, by the keys of kubectl devinfo.
type Identity struct {
	Namespace   string `json:"namespace,omitempty"` // "" = not created by Kubernetes
	Pod         string `json:"pod,omitempty"`
	Claim       string `json:"claim,omitempty"` // ResourceClaim in Namespace; its UID if the record cannot be read; "" = not by DRA
	Network     string `json:"network,omitempty"`
	ContainerID string `json:"containerID,omitempty"`
	Interface   string `json:"interface,omitempty"`

	State check.State `json:"state,omitempty"`
}

// Key is the attachment's key in the journal.
func (i Identity) Key() journal.Key {
	return journal.Key{Network: i.Network, ContainerID: i.ContainerID, IfName: i.Interface}
}

// PodName is namespace/name of the pod; "" = not created by Kubernetes.
func (i Identity) PodName() string { return i.named(i.Pod) }

// ClaimName is namespace/name of the claim, or its UID; "" = not by DRA.
func (i Identity) ClaimName() string { return i.named(i.Claim) }

func (i Identity) named(name string) string {
	if name == "" || i.Namespace == "" {
		return name
	}
	return i.Namespace + "/" + name
}

// String returns the full name of the attachment. If it has no container yet, the name contains the claim instead.
// If its network is unknown too, the name is only the claim.
func (a Attachment) String() string {
	switch {
	case a.Network == "":
		return "claim " + a.ClaimName()
	case a.ContainerID == "":
		return a.Network + "/claim " + a.ClaimName() + "/" + a.Interface
	}
	return a.Key().String()
}

// Short is String with the container's [ShortID].
func (a Attachment) Short() string {
	a.ContainerID = ShortID(a.ContainerID)
	return a.String()
}

// ShortID returns the first twelve digits of a container ID, as container tools print it.
func ShortID(id string) string { return id[:min(12, len(id))] }

// Holder returns the name of the pod, else the short ID of the container, else the name of the claim.
func (a *Attachment) Holder() string {
	return cmp.Or(a.PodName(), ShortID(a.ContainerID), "claim "+a.ClaimName())
}

// Left reports whether the attachment is unused and only needs cleanup.
func (a *Attachment) Left() bool {
	return a.State == check.Stale || a.State == check.Undeleted
}

// Unread reports whether only the state and its reason are known.
func (a *Attachment) Unread() bool {
	return a.State == check.Corrupt || a.State == check.Newer || a.entry == nil && a.record == ""
}

// Attachments returns the attachments of Recorded, compared by [Node.Judge].
func (n *Node) Attachments() ([]Attachment, error) {
	list, err := n.Recorded()
	n.Judge(list, false)
	return list, err
}

// Recorded returns the attachments of the journal and of claims' records, sorted by pod, with the states that
// need no comparison.
func (n *Node) Recorded() ([]Attachment, error) {
	list, err := n.journaled()
	claimed, claimedErr := n.claimed()
	if err = cmp.Or(err, claimedErr); err != nil {
		return nil, err
	}
	own := map[journal.Key]int{}
	for at := range list {
		own[list[at].Key()] = at
	}
	for _, c := range claimed {
		at, there := own[c.Key()]
		if !there {
			list = append(list, c)
			continue
		}
		list[at].Namespace, list[at].Claim, list[at].record, list[at].node = c.Namespace, c.Claim, c.record, c.node
		if list[at].Lease != journal.Exclusive && c.Lease != "" {
			list[at].Lease, list[at].Has, list[at].Shares = c.Lease, c.Has, c.Shares
		}
		if c.State == check.Undeleted || c.State == check.Deleting {
			list[at].State, list[at].Why = c.State, c.Why
		}
	}
	slices.SortStableFunc(list, func(a, b Attachment) int { return strings.Compare(a.PodName(), b.PodName()) })
	return list, nil
}

// journaled reads every entry of the journal, sorted by network.
func (n *Node) journaled() ([]Attachment, error) {
	keys, err := n.journal.All()
	if err != nil {
		return nil, n.journalError(err)
	}
	list := []Attachment{}
	for _, key := range keys {
		a, err := n.attachment(key)
		if err != nil {
			return nil, n.journalError(err)
		}
		if a != nil {
			list = append(list, *a)
		}
	}
	return list, nil
}

type Garbage struct {
	Stale []Attachment `json:"stale"`
	Kept  []Attachment `json:"kept,omitempty"` // perhaps stale, but they cannot be read or judged
}

func (n *Node) Garbage() (*Garbage, error) {
	list, err := n.journaled()
	g := &Garbage{Stale: []Attachment{}}
	for _, a := range list {
		switch a.State {
		case check.Stale:
			g.Stale = append(g.Stale, a)
		case check.Corrupt, check.Unknown, check.Newer:
			g.Kept = append(g.Kept, a)
		}
	}
	return g, err
}

func (n *Node) journalError(err error) error {
	return n.unread("journal", "the journal in "+n.Settings.StateDir, err)
}

// unread describes the error of a failed read, if err is not nil. Its remedy for a lack of permission is to run as
// root.
func (n *Node) unread(what, is string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return clierr.For(fmt.Errorf("%s: %w", what, err), "run as root, because only root can read "+is)
	}
	return errors.New(what + ": " + n.text(err.Error()))
}

// attachment reads one entry; nil = there is none.
func (n *Node) attachment(key journal.Key) (*Attachment, error) {
	e, err := n.journal.Get(key)
	if e == nil && err == nil { // removed after All had listed it
		return nil, nil
	}
	state, why := n.checker.State(e, err)
	is := Identity{Network: key.Network, ContainerID: key.ContainerID, Interface: key.IfName, State: state}
	a := &Attachment{Identity: is, Why: n.text(why), entry: e, unread: err}
	switch {
	case e == nil && state == check.Unknown:
		return nil, err
	case e == nil:
		return a, nil
	}
	a.Why = cmp.Or(a.Why, e.Reason)
	if namespace, pod := e.PodName(); pod != "" {
		a.Namespace, a.Pod = namespace, pod
	}
	a.Type, a.Device, a.CDI, a.Netns, a.Facts = e.Device.Type, e.Device.ID, e.CDI.Device, e.Netns, factsOf(e.Info)
	if !e.Time.IsZero() {
		a.Since = &e.Time
	}
	if e.File != "" && (e.Wrote || !e.Complete) {
		a.File = e.Path()
	}
	if !a.Left() { // a stale attachment does not block its devices
		a.leased(n.journal.Devices(e))
	}
	return a, nil
}
