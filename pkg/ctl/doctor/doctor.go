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
	Attachments []node.Attachment  // compared with the present state
	Unrecorded  []node.ClaimLeases // leases of claims without a record of cni-dra-driver
	Unseen      int                // number of claims with leases whose records are not visible here
	VFs         []VF
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
	Live        *Live        // nil = a capture without live facts
}

// VF is a virtual function with the settings that its PF reports.
type VF struct {
	Address  string // PCI address
	PFDriver string // "" = the PF is unbound
	Known    bool   // the PF reports the settings
	settings.VFRecord
}

// A probe is one check of the evidence. If look adds no finding, the check has passed, and its result is the text
// that well returns.
type probe struct {
	name string
	live bool // look needs facts in [Live]
	look func(*Evidence, *findings)
	well func(*Evidence) string // "" = there was nothing to check
}

func probes() []probe {
	is := func(text string) func(*Evidence) string { return func(*Evidence) string { return text } }
	return []probe{
		{"attachments", false, attachments, func(f *Evidence) string { return Count(len(f.Attachments), "attachment") + ", no problem" }},
		{"leases", false, leases, is("cni-dra-driver has a record of each claim with a lease")},
		{"holders", false, holders, func(e *Evidence) string {
			if !e.knowsPods() {
				return Count(len(e.VFs), "VF") + ", none with two leases"
			}
			return Count(len(e.VFs), "VF") + ", none with two holders"
		}},
		{"allocations", true, allocations, func(e *Evidence) string {
			if !e.knowsPods() { // the check "sight" says why
				return ""
			}
			return Count(len(e.Live.Devices), "device") + " given to pods, none missing"
		}},
		{"usable", false, usable, countUsable},
		{"leftovers", true, leftovers, is("no free VF differs from those beside it")},
		{"addresses", true, addresses, func(e *Evidence) string {
			if e.unsettled() { // the check "leftovers" says so
				return ""
			}
			return "no two VFs have the same MAC, except in a bond"
		}},
		{"cards", false, cards, nil},
		{"plugin", true, plugin, is("the devinfo plugin is installed, and is of this build")},
		{"settings", false, nodeSettings, is("the node settings can be used")},
		{"networks", true, networks, func(e *Evidence) string {
			return Count(len(e.Live.Networks), "network configuration") + " with devinfo, no problem"
		}},
		{"directories", true, directories, is("the directories of CNI and CDI can be used")},
		{"runtime", true, runtime, is("the container runtime offers NRI")},
		{"offer", false, offer, offered},
		{"sight", false, sight, nil},
	}
}

// levels are the levels, problems first.
var levels = []finding.Level{finding.Error, finding.Warning, finding.Unknown, finding.Info, finding.OK}

// Diagnose runs all checks. It returns the problems first.
func Diagnose(e *Evidence) (all []Finding) {
	for _, c := range probes() {
		var list findings
		if c.live && e.Live == nil { // the check "sight" says so
			continue
		}
		c.look(e, &list)
		if len(list) == 0 && c.well != nil {
			if text := c.well(e); text != "" {
				list = append(list, Finding{Level: finding.OK, Text: text})
			}
		}
		for _, a := range list {
			a.Check = c.name
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return slices.Index(levels, a.Level) - slices.Index(levels, b.Level) })
	return all
}

// Count formats a number with its noun, which has a plural in -s.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// EvidenceOf returns the evidence of a node. live is nil if the capture has no live facts.
func EvidenceOf(n *node.Node, host hostdev.Host, live *Live) (*Evidence, error) {
	list, err := n.Attachments()
	offer, offerErr := n.Offer()
	unrecorded, unrecordedErr := n.UnrecordedLeases()
	if err = cmp.Or(err, unrecordedErr); err != nil || errors.Is(offerErr, fs.ErrPermission) {
		return nil, cmp.Or(err, offerErr)
	}
	e := &Evidence{
		Attachments: list, Unrecorded: unrecorded, Offer: offer, OfferError: offerErr,
		CDIDir: n.Settings.CDIDir, DRA: n.FileThere(n.ClaimDir), Live: live,
	}
	if !n.SeesDriver() {
		e.Unseen, e.Unrecorded = len(e.Unrecorded), nil
	}
	return e, e.read(host)
}

// read adds the devices of the host.
func (e *Evidence) read(host hostdev.Host) (err error) {
	host.Eswitches = nil // their modes do not matter
	devices, _, devicesErr := hostdev.Read(host)
	shared, sharedErr := host.Sys.IsRDMAShared()
	rdma, rdmaErr := host.Sys.RDMADevices()
	cards, cardsErr := nic.Seen(host.Sys, devices)
	if err = cmp.Or(devicesErr, sharedErr, rdmaErr, cardsErr); err != nil {
		return err
	}
	e.Devices, e.Closed, e.RDMA, e.Cards = devices, !shared, rdma, cards
	for _, d := range e.Devices {
		if d.Kind == hostdev.VF {
			e.VFs = append(e.VFs, e.vf(d))
		}
	}
	if e.Live == nil {
		return nil
	}
	for _, given := range e.Live.Devices {
		there, known, err := onNode(host.Sys, given.Device)
		if err != nil {
			return err
		}
		if known && !there {
			e.GivenGone = append(e.GivenGone, given)
		}
	}
	return nil
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

func (e *Evidence) vf(d *hostdev.Device) VF {
	vf := VF{Address: d.PCI, PFDriver: d.Parent.Driver, VFRecord: settings.VFRecord{PF: d.Parent.PCI}}
	if d.Number != nil && e.Live != nil {
		is := func(v settings.VFRecord) bool { return v.PF == vf.PF && v.Index == *d.Number }
		if at := slices.IndexFunc(e.Live.VFs, is); at >= 0 {
			vf.Known, vf.VFRecord = true, e.Live.VFs[at]
		}
	}
	return vf
}
