package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/state"
)

// Holder is the attachment or claim that has a lease, or the network namespace that sriov-cni has allocated
// the device to.
type Holder struct {
	Entry *Entry // nil = not an attachment; has only the Key if a newer build wrote the entry
	Claim *Claim // nil = not a claim
	Netns string // from sriov-cni's allocation file
	Mode  SharingMode
}

// Name returns the pod with its network, the claim, or the network namespace, for people.
func (h Holder) Name() string {
	switch {
	case h.Claim != nil:
		return "claim " + cmp.Or(strings.Trim(h.Claim.Namespace+"/"+h.Claim.Name, "/"), h.Claim.UID) // unreadable records have only the UID
	case h.Entry == nil:
		return "network namespace " + h.Netns + " (by sriov-cni)"
	}
	who := "container " + h.Entry.ContainerID
	if namespace, name := h.Entry.PodName(); name != "" {
		who = "pod " + clierr.Printable(namespace+"/"+name)
	}
	return fmt.Sprintf("%s (%s, network %s)", who, h.Entry.IfName, h.Entry.Network)
}

// HeldError reports that another holder's lease excludes the requested one.
type HeldError struct {
	Kind   Kind
	ID     string // file name, directory path or device ID
	Part   string // requested device if the device ID contains it, as a PF contains a VF; else ""
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
	text += ": is held by " + e.Holder.Name()
	var since time.Time
	switch h := e.Holder; {
	case h.Claim != nil:
		since = h.Claim.Time
	case h.Entry != nil:
		since = h.Entry.Time
	}
	if since.IsZero() { // unknown
		return text
	}
	return text + ", since " + since.UTC().Format("2006-01-02 15:04:05 MST")
}

// DeviceName returns the name of a device for display: the PCI address, the name on its bus, or the IOMMU group.
func DeviceName(id string) string {
	if bus, name, ok := strings.Cut(id, "-"); ok && bus != "iommu" {
		return name
	}
	return "IOMMU group " + strings.TrimPrefix(id, "iommu-")
}

// A Lessee is an [Entry] or a [Claim]: a record that names leases.
type Lessee interface {
	holderLinks() (holderLinks, error)
}

// holderLinks describes the links for the leases of an entry or claim.
type holderLinks struct {
	link   string   // name of each link: the entry's or the claim's record
	target string   // target of each link, relative to the state directory
	pods   []string // UIDs of the pods that may share socket directories and devices with this record
	netns  string   // network namespace whose sriov-cni allocations belong to this record's pod
	leases []lease  // all that the record names
}

func (e *Entry) holderLinks() (holderLinks, error) {
	name, err := e.entry()
	by := holderLinks{link: name, target: entriesDir + "/" + name, netns: e.Netns, leases: e.leases()}
	if e.Pod != "" {
		by.pods = []string{e.Pod}
	}
	return by, err
}

func (c *Claim) holderLinks() (holderLinks, error) {
	return holderLinks{c.FileName(), claimsDir + "/" + c.FileName(), c.Pods, c.Netns, devices(c.Leases)}, nil
}

// Free returns an error, such as a [*HeldError], if another holder excludes the record from a lease that it names. It
// takes no lease. Callers that only describe a device use it.
func (j *Journal) Free(of Lessee) error {
	by, err := of.holderLinks()
	if err == nil {
		_, err = j.allowed(by)
	}
	return err
}

// Has reports whether the attachment has an exclusive lease of the device with that sysfs inode (0 = unknown).
// The inode distinguishes the device from a later one with the same name. Has reads the links, because an entry
// also names leases that a killed ADD did not take.
func (j *Journal) Has(e *Entry, id string, inode uint64) bool {
	return slices.ContainsFunc(j.Devices(e), func(l DeviceLease) bool {
		return l.ID == id && l.Mode == Exclusive && (l.Object == inode || l.Object == 0 || inode == 0)
	})
}

// Devices returns the device leases that a record names and has a link for.
func (j *Journal) Devices(of Lessee) (has []DeviceLease) {
	by, err := of.holderLinks()
	for _, l := range by.leases {
		if err == nil && l.kind == OfDevice && !notThere(j.leases.path(l, by.link)) {
			has = append(has, l.DeviceLease)
		}
	}
	return has
}

// Holds reports whether an attachment has an exclusive lease. It looks only for the lease's symbolic link, not at
// the attachment's entry, which may be missing, corrupt or of another boot.
func (j *Journal) Holds(k Key, kind Kind, id string) bool {
	name, err := k.entry()
	return err == nil && !notThere(j.leases.path(lease{kind, DeviceLease{ID: id, Mode: Exclusive}}, name))
}

// Holders returns the holders of a thing's leases that count, the exclusive one first. For devices it skips
// attachments whose network namespace no longer exists. It includes a corrupt entry of the current boot.
func (j *Journal) Holders(kind Kind, id string) (list []Holder, err error) {
	l := lease{kind, DeviceLease{ID: id}}
	if err := j.readable(); err != nil {
		return nil, err
	}
	links, err := j.leases.of(l)
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		h, _, err := j.counts(l, link)
		if err != nil {
			return nil, err
		}
		if h != nil {
			list = append(list, *h)
		}
	}
	return list, nil
}

// Owner returns the attachment that owns a file or spec, or nil.
func (j *Journal) Owner(kind Kind, id string) (*Key, error) {
	holders, err := j.Holders(kind, id)
	if err != nil || len(holders) == 0 || holders[0].Entry == nil {
		return nil, err
	}
	return &holders[0].Entry.Key, nil
}

// Leased returns the IDs of all things of a kind that have links, including stale ones.
func (j *Journal) Leased(kind Kind) ([]string, error) {
	if err := j.readable(); err != nil {
		return nil, err
	}
	return j.leases.ids(kind)
}

// FillFromLeases fills the lease fields of a corrupt entry from the links on disk. It reads every lease of the node.
func (j *Journal) FillFromLeases(e *Entry) error {
	name, err := e.readable(j)
	if err != nil {
		return err
	}
	things, err := j.leases.things()
	for _, l := range things {
		for _, l.Mode = range []SharingMode{Shared, Exclusive} {
			_, unseen := os.Lstat(j.leases.path(l, name))
			if unseen == nil {
				e.add(l)
			} else if !absent(unseen) {
				err = errors.Join(err, unseen)
			}
		}
	}
	return err
}

// SRIOVLocks is the directory where sriov-cni keeps a file for each allocated VF, named by the PCI address. The file
// contains the path of the pod's network namespace (sriov-cni, pkg/utils/pci_allocator.go).
const SRIOVLocks = "/var/lib/cni/sriov/pci"

type SRIOVLock struct {
	Device string `json:"device"`         // PCI address
	Netns  string `json:"netns"`          // path
	Gone   bool   `json:"gone,omitempty"` // the network namespace no longer exists, so sriov-cni ignores the allocation
}

// ReadSRIOVLocks returns all allocations in the directory, or none if it is missing. A network namespace
// counts as gone only if gone returns no error.
func ReadSRIOVLocks(dir fs.FS, gone func(netns string) (bool, error)) (list []SRIOVLock, err error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the locks of sriov-cni: %w", err)
	}
	for _, e := range entries {
		a, err := pci.Parse(e.Name())
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		netns, err := sriovLock(dir, e.Name())
		if err != nil {
			return nil, err
		}
		if netns != "" {
			list = append(list, SRIOVLock{a.String(), netns, surely(gone(netns))})
		}
	}
	return list, nil
}

// LockedBySRIOV returns the VFs that sriov-cni has allocated to pods, each with a reason for display.
func LockedBySRIOV(dir fs.FS, gone func(netns string) (bool, error)) (map[string]string, error) {
	list, err := ReadSRIOVLocks(dir, gone)
	all := map[string]string{}
	for _, l := range list {
		if !l.Gone {
			all[l.Device] = "sriov-cni has allocated it to network namespace " + l.Netns
		}
	}
	return all, err
}

func sriovLock(dir fs.FS, address string) (netns string, err error) {
	text, err := fs.ReadFile(dir, address)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot read the locks of sriov-cni: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// lockedBySRIOV returns sriov-cni's holder of a VF, or nil if the VF is free or allocated to the pod of by.
func (l lease) lockedBySRIOV(by holderLinks, j *Journal) (*Holder, error) {
	address, ok := strings.CutPrefix(l.ID, "pci-")
	if !ok || l.kind != OfDevice || j.SRIOVLocks == "" {
		return nil, nil
	}
	netns, err := sriovLock(os.DirFS(j.SRIOVLocks), address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", j.SRIOVLocks, err)
	}
	if netns == "" || netns == by.netns {
		return nil, nil
	}
	if surely(j.NetnsGone(netns)) {
		held, err := j.driver.Holds(j.ClaimDir(), j.bootID, netns)
		if !held && (err == nil || errors.Is(err, state.ErrNotVisible)) { // a node without a kubelet has no driver
			return nil, nil
		}
	}
	return &Holder{Netns: netns, Mode: Exclusive}, nil
}

// surely treats an error as false.
func surely(is bool, err error) bool { return is && err == nil }
