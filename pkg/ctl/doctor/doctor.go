// Package doctor finds problems of a node's devices and plumbing, with remedies. It compares attachments,
// files, VFs, their holders, the plugins and their network configurations.
//
// Each check is a function of the [Evidence] and changes nothing. [Gather] collects the [Live] facts, which
// are only available on the node itself. A capture contains them, so that it can be examined elsewhere.
//
// Package doctor examines a whole node. Package check examines one attachment, and package validate one text.
package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/ctl/finding"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
)

type Finding struct {
	Check  string        `json:"check"`
	Level  finding.Level `json:"level"`
	Rule   string        `json:"rule,omitempty"`   // of [Rules]; "" = the check has passed
	Text   string        `json:"text"`             // object and problem
	Remedy string        `json:"remedy,omitempty"` // "" = there is nothing to do
}

// Evidence is the input of the checks.
type Evidence struct {
	Attachments []node.Attachment    // compared with the present state
	Unrecorded  []node.ClaimLeases   // leases of claims without a record of cni-dra-driver
	Unseen      int                  // number of claims with leases whose records are not visible here
	VFs         []VF                 // those whose settings are known
	Devices     []*hostdev.Device    // network devices of the node
	Closed      bool                 // only the host's network namespace can open RDMA devices
	RDMA        []sysfs.RDMADevice   // all of the node
	GivenGone   []podresources.Given // allocations of devices that are not on the node
	Cards       []nic.Card
	NodeFile    string       // why the node settings cannot be used; "" = they can
	CDIDir      string       // directory of CDI specs in the node settings
	DRA         bool         // cni-dra-driver has a state directory here
	Asking      build.Info   // build of this program; the plugin should have the same
	Offer       *state.Offer // nil = cni-dra-driver offers no devices
	OfferError  error        // why the offer is not known
	Live        *Live
}

// VF is a virtual function with the settings that its PF reports.
type VF struct {
	Address  string // PCI address
	PFDriver string
	settings.VFRecord
}

// A probe is one check of the evidence.
type probe struct {
	name string
	fact string // what is true if the check has passed; "" = it only informs
	look func(*Evidence, *findings)
	live bool                 // look needs facts in [Live]
	sees func(*Evidence) bool // there is something to check, and all is known that tells; nil = always
}

var probes = []probe{
	{"attachments", "the journal, the claims, the files, the namespaces and the devices agree", attachments, false, func(e *Evidence) bool { return len(e.Attachments) > 0 && e.Unseen == 0 }},
	{"leases", "cni-dra-driver has a record of each claim with a lease", leases, false, func(e *Evidence) bool { return e.Unseen == 0 }},
	{"holders", "no VF has two holders: exclusive leases, device plugins, sriov-cni", holders, false, (*Evidence).knowsPods},
	{"allocations", "the node has each device that the kubelet has given to a pod", allocations, true, (*Evidence).knowsPods},
	{"usable", "the next pod can use each VF, SF and vDPA device that no pod has", usable, false, (*Evidence).knowsPods},
	{"leftovers", "no free VF differs from those beside it in VLAN, trust, rates, spoof check or MAC", leftovers, true, nil},
	{"addresses", "no two VFs have the same MAC, except in the bond of a pod", addresses, true, (*Evidence).knowsVFs},
	{"cards", "", cards, false, nil},
	{"plugin", "the devinfo plugin is installed, and is of this program's build", plugin, true, nil},
	{"settings", "the node settings can be used", nodeSettings, false, nil},
	{"networks", "order, versions and capabilities of the network configurations with devinfo are right", networks, true, nil},
	{"directories", "the directories of CNI and CDI can be used, and ADD can write to its own", directories, true, nil},
	{"runtime", "the container runtime offers NRI", runtime, true, nil},
	{"offer", "each rule of cni-dra-driver names a device of this node", offer, false, func(e *Evidence) bool { return e.Offer != nil }},
	{"sight", "", sight, false, nil},
}

// Checks describes the checks that can pass, each on a line.
func Checks() string {
	var b strings.Builder
	for _, p := range probes {
		if p.fact != "" {
			fmt.Fprintf(&b, "  %-11s  %s\n", p.name, p.fact)
		}
	}
	return b.String()
}

// levels are the levels, problems first.
var levels = []finding.Level{finding.Error, finding.Warning, finding.Unknown, finding.Info, finding.OK}

// Diagnose runs all checks. It returns the problems first.
func Diagnose(e *Evidence) (all []Finding) {
	for _, p := range probes {
		var list findings
		if p.live && e.Live.None { // the check "sight" says so
			continue
		}
		p.look(e, &list)
		unread := slices.ContainsFunc(e.Live.Notes, func(n Note) bool { return n.Check == p.name })
		if len(list) == 0 && p.fact != "" && !unread && (p.sees == nil || p.sees(e)) {
			list = findings{{Level: finding.OK, Text: p.fact}}
		}
		for _, f := range list {
			f.Check = p.name
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return slices.Index(levels, a.Level) - slices.Index(levels, b.Level) })
	return all
}

// EvidenceOf returns the evidence of a node.
func EvidenceOf(n *node.Node, host hostdev.Host, live *Live) (*Evidence, error) {
	host.Eswitches = nil // their modes do not matter
	list, err := n.Attachments()
	unrecorded, unrecordedErr := n.UnrecordedLeases()
	devices, _, devicesErr := hostdev.Read(host)
	shared, sharedErr := host.Sys.IsRDMAShared()
	rdma, rdmaErr := host.Sys.RDMADevices()
	cards, cardsErr := nic.Seen(host.Sys, devices)
	if err = cmp.Or(err, unrecordedErr, devicesErr, sharedErr, rdmaErr, cardsErr); err != nil {
		return nil, err
	}
	offer, offerErr := n.Offer()
	if errors.Is(offerErr, fs.ErrPermission) {
		return nil, offerErr
	}
	e := &Evidence{
		Attachments: list, Unrecorded: unrecorded, Offer: offer, OfferError: offerErr, Devices: devices, Closed: !shared, RDMA: rdma, Cards: cards,
		CDIDir: n.Settings.CDIDir, DRA: n.FileThere(n.ClaimDir), Live: live,
	}
	if !n.SeesDriver() {
		e.Unseen, e.Unrecorded = len(e.Unrecorded), nil
	}
	for _, d := range devices {
		is := func(v settings.VFRecord) bool { return v.PF == d.Parent.PCI && v.Index == *d.Number }
		if d.Kind != hostdev.VF || d.Number == nil {
			continue
		}
		if at := slices.IndexFunc(live.VFs, is); at >= 0 {
			e.VFs = append(e.VFs, VF{d.PCI, d.Parent.Driver, live.VFs[at]})
		}
	}
	for _, given := range e.Live.Devices {
		there, known, err := onNode(host.Sys, given.Device)
		if err != nil {
			return nil, err
		}
		if known && !there {
			e.GivenGone = append(e.GivenGone, given)
		}
	}
	return e, nil
}

// onNode reports whether the device of an ID is on the node. known is false for an ID that is not the name of a device.
func onNode(sys *sysfs.FS, id string) (there, known bool, err error) {
	bus := "auxiliary"
	if address, err := pci.Parse(id); err == nil {
		bus, id = "pci", address.String()
	} else if !strings.Contains(id, ".sf.") || strings.Contains(id, "/") {
		return false, false, nil
	}
	_, there, err = sys.Inode(bus, id)
	return there, true, err
}
