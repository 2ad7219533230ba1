package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
)

// leased sets the devices of an attachment from its leases. The attachment's device becomes the leased one,
// because device information of an SF names only the PCI function.
func (a *Attachment) leased(leases []journal.DeviceLease) {
	named := sysfs.ID(a.Type, a.Device)
	for _, l := range leases {
		at, ok := placeOfID(l.ID)
		if !ok {
			continue
		}
		if l.Mode == journal.Exclusive {
			a.Has = append(a.Has, at.Name)
		} else {
			a.Shares = append(a.Shares, at.Name)
		}
		stronger := a.Lease == "" || l.Mode == journal.Exclusive && a.Lease == journal.Shared
		if stronger || l.ID == named && l.Mode == a.Lease {
			a.Type, a.Device, a.Lease = at.Bus, at.Name, l.Mode
		}
	}
}

// placeOfID returns the device of a lease; ok is false for an IOMMU group.
func placeOfID(id string) (at hostdev.Place, ok bool) {
	bus, name, _ := strings.Cut(id, "-")
	return hostdev.Place{Bus: bus, Name: name}, bus != "iommu"
}

// leasedByClaim is like leased, for an attachment of a claim. part selects the attachment's record among the
// claim's records in the journal. Bonds and bridges (bus "net") have no leases, so their mode comes from the
// driver's record.
func (n *Node) leasedByClaim(a *Attachment, uid, part string) error {
	if at, ok := a.Place(); ok && at.Bus == "net" {
		if a.Lease = journal.Exclusive; a.node.Shared() {
			a.Lease = journal.Shared
		}
		return nil
	}
	of := journal.Claim{UID: uid, Part: part}
	c, err := n.readClaim(of.FileName())
	if c != nil {
		a.leased(n.journal.Devices(c))
	}
	return err
}

// readClaim returns a claim's record in the journal; nil if there is none or it is unreadable.
func (n *Node) readClaim(record string) (*journal.Claim, error) {
	c, err := n.journal.Claim(record)
	if errors.As(err, new(*store.CorruptError)) || errors.As(err, new(*journal.FormatError)) {
		return nil, nil
	}
	if err != nil {
		return nil, n.journalError(err)
	}
	return c, nil
}

// ClaimLeases are the leases of a claim in its journal record.
type ClaimLeases struct {
	Record  string   `json:"record"`            // path of the record
	Claim   string   `json:"claim,omitempty"`   // namespace/name; "" = unknown
	Devices []string `json:"devices,omitempty"` // names with their kind of lease, for messages

	UID    string         `json:"-"`
	Has    []string       `json:"-"` // devices with an exclusive lease
	Of     *journal.Claim `json:"-"` // nil = from another boot, or unreadable
	Driver string         `json:"-"` // path that cni-dra-driver's record of the claim would have
	Aside  string         `json:"-"` // path of that record, set aside as damaged; "" = there is none

	key string // of the record
}

func (n *Node) claimLeases() ([]ClaimLeases, error) {
	list := []ClaimLeases{}
	records, err := n.journal.Claims()
	if err != nil {
		return nil, n.journalError(err)
	}
	for _, record := range records {
		l := ClaimLeases{Record: journal.ClaimPath(n.Settings.StateDir, record), key: record}
		l.UID, _, _ = strings.Cut(record, "=")
		l.Driver = state.Path(n.ClaimDir, l.UID)
		if aside := state.AsidePath(n.ClaimDir, l.UID); n.FileThere(aside) {
			l.Aside = aside
		}
		if l.Of, err = n.readClaim(record); err != nil {
			return nil, err
		}
		if l.Of != nil {
			l.Claim = Identity{Namespace: l.Of.Namespace, Claim: l.Of.Name}.ClaimName()
			for _, d := range n.journal.Devices(l.Of) {
				name := journal.DeviceName(d.ID)
				if d.Mode == journal.Exclusive {
					l.Has = append(l.Has, name)
				} else {
					name += " (shared)"
				}
				l.Devices = append(l.Devices, name)
			}
		}
		list = append(list, l)
	}
	return list, nil
}

// Holds returns the devices of claims without a record of cni-dra-driver, as attachments.
func (n *Node) Holds() (list []Attachment, err error) {
	all, err := n.UnrecordedLeases()
	for _, l := range all {
		for _, d := range n.journal.Devices(l.Of) {
			if at, ok := placeOfID(d.ID); ok && d.Mode == journal.Exclusive {
				list = append(list, Attachment{Identity: Identity{Namespace: l.Of.Namespace, Claim: l.Of.Name}, Type: at.Bus, Device: at.Name, Lease: d.Mode})
			}
		}
	}
	return list, err
}

// UnrecordedLeases returns the leases of claims without a record of cni-dra-driver.
func (n *Node) UnrecordedLeases() ([]ClaimLeases, error) {
	list, err := n.claimLeases()
	return slices.DeleteFunc(list, func(l ClaimLeases) bool {
		return l.Of == nil || n.FileThere(l.Driver)
	}), err
}

// LeasesOf returns the leases of a claim. It is an error if cni-dra-driver has a record of the claim, because
// the driver ends its leases itself.
func (n *Node) LeasesOf(uid string) ([]ClaimLeases, error) {
	if err := n.unrecorded(uid); err != nil {
		return nil, err
	}
	list, err := n.claimLeases()
	return slices.DeleteFunc(list, func(l ClaimLeases) bool { return l.UID != uid }), err
}

// EndLeases ends the leases of a claim, unless cni-dra-driver has recorded it since.
func (n *Node) EndLeases(l *ClaimLeases) error {
	return n.journal.ReleaseIf(l.key, func() error { return n.unrecorded(l.UID) })
}

// SeesDriver reports whether this process can see the records of cni-dra-driver. The pod of devinfo-agent cannot,
// because it does not mount the directory of the kubelet's plugins.
func (n *Node) SeesDriver() bool {
	return n.Root != "" || state.Visible(n.ClaimDir)
}

// unrecorded returns an error if cni-dra-driver has a record of a claim, or if its records are not visible.
func (n *Node) unrecorded(uid string) error {
	path, aside := state.Path(n.ClaimDir, uid), state.AsidePath(n.ClaimDir, uid)
	switch {
	case !n.SeesDriver():
		return clierr.For(fmt.Errorf("claim %s: cannot tell whether cni-dra-driver has a record of it, because %s is not visible here", uid, n.ClaimDir),
			"run devinfoctl gc on the node itself, or in cni-dra-driver's pod; name the directory of the records with --dra-state-dir")
	case n.FileThere(aside):
		return clierr.For(fmt.Errorf("claim %s: cni-dra-driver has set its damaged record aside, %s, so its pods may still have the devices", uid, aside),
			"delete its pods, detach what they leave, and remove that file first")
	case !n.FileThere(path):
		return nil
	}
	return clierr.For(fmt.Errorf("claim %s: cni-dra-driver has a record of it, %s, and will end its leases itself", uid, path),
		"delete its pods; if DEL was given up, cni-dra-driver clear "+uid+"; only if cni-dra-driver was removed from the node for good, remove that file first")
}
