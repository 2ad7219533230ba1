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
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/pkg/host/settings"
)

type Level string

// The levels. Only Error means that something does not work.
const (
	OK      Level = "ok"
	Info    Level = "info"
	Unknown Level = "unknown" // it could not be checked
	Warning Level = "warning"
	Error   Level = "error"
)

type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Text   string `json:"text"`             // object and problem
	Remedy string `json:"remedy,omitempty"` // "" = there is nothing to do
}

// Evidence is the input of the checks.
type Evidence struct {
	Attachments []node.Attachment  // compared with the present state
	Unrecorded  []node.ClaimLeases // leases of claims without a record of cni-dra-driver
	Unseen      int                // number of claims with leases whose records are not visible here
	VFs         []VF
	VDPAs       []*hostdev.Device
	Cards       []nic.Card
	NodeFile    string       // why the node settings cannot be used; "" = they can
	CDIDir      string       // directory of CDI specs in the node settings
	DRA         bool         // cni-dra-driver has a state directory here
	Asking      build.Info   // build of this program; the plugin should have the same
	Offer       *state.Offer // nil = cni-dra-driver offers no devices
	Live        *Live        // nil = a capture without live facts
}

// VF is a virtual function with the settings that its PF reports.
type VF struct {
	Address  string // PCI address
	Driver   string // "" = unbound
	PFDriver string // "" = the PF is unbound
	Known    bool   // the PF reports the settings
	settings.VFRecord
}

// A probe is one check of the evidence. If look adds no finding, the check has passed, and its result is the text
// that well returns.
type probe struct {
	name string
	live string // name of the facts in [Live] that look needs; "" = none
	look func(*Evidence, *findings)
	well func(*Evidence) string // "" = there was nothing to check
}

// findings collects the findings of one probe.
type findings []Finding

func (f *findings) add(level Level, text, remedy string) {
	*f = append(*f, Finding{Level: level, Text: text, Remedy: remedy})
}

// unseen adds a finding for facts that the capture does not contain.
func (f *findings) unseen(what string) {
	f.add(Unknown, what+": not in the capture", "capture the host with this devinfoctl")
}

func probes() []probe {
	is := func(text string) func(*Evidence) string { return func(*Evidence) string { return text } }
	return []probe{
		{"attachments", "", attachments, func(f *Evidence) string { return Count(len(f.Attachments), "attachment") + ", no problem" }},
		{"leases", "", leases, is("cni-dra-driver has a record of each claim with a lease")},
		{"holders", "", holders, func(e *Evidence) string { return Count(len(e.VFs), "VF") + ", none with two holders" }},
		{"leftovers", "", leftovers, is("no free VF has a VLAN, trust or MAC address of an earlier pod")},
		{"addresses", "", addresses, is("no two VFs have the same MAC, except in a bond")},
		{"drivers", "", drivers, is("each VF and vDPA device has a driver")},
		{"cards", "", cards, nil},
		{"plugin", "which plugins are installed", plugin, is("the devinfo plugin is installed, and is of this build")},
		{"settings", "", nodeSettings, is("the node settings can be used")},
		{"networks", "the network configurations", networks, func(e *Evidence) string {
			return Count(len(e.Live.Networks), "network configuration") + " with devinfo, no problem"
		}},
		{"directories", "the directories of CNI and CDI", directories, is("the directories of CNI and CDI exist")},
		{"runtime", "NRI", runtime, is("the container runtime offers NRI")},
		{"offer", "", offer, offered},
		{"sight", "", sight, nil},
	}
}

func Diagnose(e *Evidence) (all []Finding) {
	for _, c := range probes() {
		var list findings
		if c.live != "" && e.Live == nil {
			list.unseen(c.live)
		} else {
			c.look(e, &list)
		}
		if len(list) == 0 && c.well != nil {
			if text := c.well(e); text != "" {
				list.add(OK, text, "")
			}
		}
		for _, a := range list {
			a.Check = c.name
			all = append(all, a)
		}
	}
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
func EvidenceOf(n *node.Node, live *Live) (*Evidence, error) {
	list, err := n.Attachments()
	if err != nil {
		return nil, err
	}
	offer, offerErr := n.Offer()
	unrecorded, unrecordedErr := n.UnrecordedLeases()
	if err := cmp.Or(offerErr, unrecordedErr); err != nil {
		return nil, err
	}
	e := &Evidence{
		Attachments: list, Unrecorded: unrecorded, Offer: offer,
		CDIDir: n.Settings.CDIDir, DRA: n.FileThere(n.ClaimDir), Live: live,
	}
	if len(e.Unrecorded) > 0 && !n.SeesDriver() {
		e.Unseen, e.Unrecorded = len(e.Unrecorded), nil
	}
	devices, _, err := hostdev.Read(hostdev.Host{Sys: n.Sys})
	if err == nil {
		e.Cards, err = nic.Seen(n.Sys, devices)
	}
	for _, d := range devices {
		switch d.Kind {
		case hostdev.VDPA:
			e.VDPAs = append(e.VDPAs, d)
		case hostdev.VF:
			vf := VF{Address: d.PCI, Driver: d.Driver, PFDriver: d.Parent.Driver, VFRecord: settings.VFRecord{PF: d.Parent.PCI}}
			if d.Number != nil && e.Live != nil {
				is := func(v settings.VFRecord) bool { return v.PF == vf.PF && v.Index == *d.Number }
				if at := slices.IndexFunc(e.Live.VFs, is); at >= 0 {
					vf.Known, vf.VFRecord = true, e.Live.VFs[at]
				}
			}
			e.VFs = append(e.VFs, vf)
		}
	}
	return e, err
}
