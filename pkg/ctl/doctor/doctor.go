// Package doctor finds what is wrong with the devices and the plumbing of a node, and says
// what to do about it: it holds attachments, files, VFs, their holders, the plugins and
// their network configurations against each other.
//
// [Evidence] is gathered first; each check is a function of it that answers, and touches
// nothing. [Gather] collects the [Live] facts, which only the node itself has, so that a
// captured host can be examined later.
//
// It is for people who look at a whole node. Package check says what is wrong with one
// attachment, and package validate what is wrong with one text.
package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/link"
)

// Level is how grave an answer is.
type Level string

// The levels. Only an Error means that something does not work.
const (
	OK      Level = "ok"
	Info    Level = "info"
	Unknown Level = "unknown" // it could not be checked
	Warning Level = "warning"
	Error   Level = "error"
)

// Answer is one line of a diagnosis.
type Answer struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Text   string `json:"text"`             // the subject, and what was found
	Remedy string `json:"remedy,omitempty"` // what to do; "" = nothing
}

// Evidence is all that the checks look at.
type Evidence struct {
	Attachments []node.Attachment  // with their verdicts
	Unowned     []string           // device-info files, by path, that no attachment owns
	Stale       []string           // leases, by path, whose holder is gone
	Unrecorded  []node.ClaimLeases // of claims of which cni-dra-driver has no record
	Unseen      int                // claims with leases, whose records cannot be seen from here
	VFs         []VF
	VDPAs       []*hostdev.Device
	NodeFile    string       // why the node settings cannot be used; "" = they can
	NodeConfig  string       // path of the node settings
	CDIDir      string       // of the node settings
	DRA         bool         // cni-dra-driver has a state directory here
	Asking      build.Info   // of the program that asks; the plugin's should be the same
	Offer       *state.Offer // nil = cni-dra-driver has left none
	Outdated    bool         // the rules have changed since the offer was made
	Live        *Live        // nil = a capture without them
}

// VF is a virtual function, and what its PF has set for it.
type VF struct {
	Address string // PCI address
	Driver  string // "" = unbound
	Known   bool   // the PF reports the settings
	link.VFRecord
}

// A question has answers; none means that all is well, and well says with what.
type question struct {
	name string
	live string // what is not known without [Live] facts; "" = look knows by itself
	look func(*Evidence, *answers)
	well func(*Evidence) string // "" = it is not said that all is well: there was nothing to look at
}

// answers are those of one question.
type answers []Answer

func (a *answers) add(level Level, text, remedy string) {
	*a = append(*a, Answer{Level: level, Text: text, Remedy: remedy})
}

// unseen says what is not in the capture.
func (a *answers) unseen(what string) {
	a.add(Unknown, what+": not in the capture", "capture the host with this devinfoctl")
}

func questions() []question {
	is := func(text string) func(*Evidence) string { return func(*Evidence) string { return text } }
	return []question{
		{"attachments", "", attachments, func(f *Evidence) string { return Count(len(f.Attachments), "attachment") + ", no problem" }},
		{"files", "", files, is("each device-info file belongs to an attachment")},
		{"holders", "", holders, func(f *Evidence) string { return Count(len(f.VFs), "VF") + ", none with two holders" }},
		{"given", "", given, nil},
		{"leftovers", "", leftovers, is("no free VF has a VLAN, trust or MAC address of an earlier pod")},
		{"addresses", "", addresses, is("no two VFs have the same MAC")},
		{"drivers", "", drivers, is("each VF and vDPA device has a driver")},
		{"plugin", "which plugins are installed", plugin, is("the devinfo plugin is installed, and is of this build")},
		{"settings", "", settings, is("the node settings can be used")},
		{"networks", "the network configurations", networks, func(f *Evidence) string {
			return Count(len(f.Live.Networks), "network configuration") + " with devinfo, no problem"
		}},
		{"directories", "the directories of CNI and CDI", directories, is("the directories of CNI and CDI exist")},
		{"runtime", "NRI", runtime, is("the container runtime offers NRI")},
		{"offer", "", offer, offered},
		{"sight", "", sight, nil},
	}
}

// Diagnose returns the answers of all checks, in order.
func Diagnose(f *Evidence) (all []Answer) {
	for _, c := range questions() {
		var list answers
		if c.live != "" && f.Live == nil {
			list.unseen(c.live)
		} else {
			c.look(f, &list)
		}
		if len(list) == 0 && c.well != nil {
			if text := c.well(f); text != "" {
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

// Count is a number of things, of a word with a plural in -s.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// FactsOf are those of a node; live is what the node says by itself, nil = nothing.
func FactsOf(n *node.Node, live *Live) (*Evidence, error) {
	list, err := n.Attachments()
	if err != nil {
		return nil, err
	}
	offer, offerErr := n.Offer()
	unowned, unownedErr := n.Unowned(list)
	stale, staleErr := n.Stale()
	unrecorded, unrecordedErr := n.UnrecordedLeases()
	if err := cmp.Or(offerErr, unownedErr, staleErr, unrecordedErr); err != nil {
		return nil, err
	}
	f := &Evidence{
		Attachments: list, Unowned: unowned, Stale: stale, Unrecorded: unrecorded, Offer: offer, Outdated: n.Outdated(offer),
		CDIDir: n.Settings.CDIDir, DRA: n.FileThere(n.ClaimDir), Live: live,
	}
	if len(f.Unrecorded) > 0 && !n.SeesDriver() {
		f.Unseen, f.Unrecorded = len(f.Unrecorded), nil
	}
	return f, f.devicesOf(n)
}

// devicesOf adds VFs and vDPA devices, with what netlink says of their settings.
func (f *Evidence) devicesOf(n *node.Node) error {
	devices, err := hostdev.List(n.Sys)
	for _, d := range devices {
		switch d.Kind {
		case hostdev.VDPA:
			f.VDPAs = append(f.VDPAs, d)
		case hostdev.VF:
			vf := VF{Address: d.PCI, Driver: d.Driver, VFRecord: link.VFRecord{PF: d.Parent.PCI}}
			if d.Number != nil && f.Live != nil {
				is := func(v link.VFRecord) bool { return v.PF == vf.PF && v.Index == *d.Number }
				if at := slices.IndexFunc(f.Live.VFs, is); at >= 0 {
					vf.Known, vf.VFRecord = true, f.Live.VFs[at]
				}
			}
			f.VFs = append(f.VFs, vf)
		}
	}
	return err
}
