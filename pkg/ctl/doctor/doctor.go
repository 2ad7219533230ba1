// Package doctor finds what is wrong with the devices and the plumbing of a node, and says
// what to do about it: it holds attachments, files, VFs, their holders, the plugins and
// their network configurations against each other.
//
// [Evidence] is gathered first; each check is a function from them to answers, and touches
// nothing. [Gather] collects the [Live] facts, which only the node itself has, so that a
// captured host can be examined later.
//
// It is for people who look at a whole node. Package check says what is wrong with one
// attachment, and package validate what is wrong with one text.
package doctor

import (
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/sysfs"
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
	Attachments []Finding
	Unowned     []string           // device-info files, by path, that no attachment owns
	Stale       []string           // leases, by path, whose holder is gone
	Unrecorded  []node.ClaimLeases // of claims of which cni-dra-driver has no record
	Unseen      int                // claims with leases, whose records cannot be seen from here
	VFs         []VF
	VDPAs       []sysfs.VDPA
	NodeFile    string       // why the node settings cannot be used; "" = they can
	NodeConfig  string       // path of the node settings
	CDIDir      string       // of the node settings
	DRA         bool         // cni-dra-driver has a state directory here
	Asking      build.Info   // of the program that asks; the plugin's should be the same
	Offer       *state.Offer // nil = cni-dra-driver has left none
	Live        *Live        // nil = a capture without them
}

// A Finding is an attachment of the journal or of a claim.
type Finding struct {
	node.Attachment
	Level  Level // of the state: Info while it is being made
	Remedy string
}

// VF is a virtual function, and what its PF has set for it.
type VF struct {
	Address string // PCI address
	PF      string // PCI address
	Driver  string // "" = unbound
	VFSettings
}

// A question has answers; none means that all is well, and well says with what.
type question struct {
	name string
	look func(*Evidence) []Answer
	well func(*Evidence) string // "" = it is not said that all is well: there was nothing to look at
}

func questions() []question {
	return []question{
		{"attachments", attachments, func(f *Evidence) string { return Count(len(f.Attachments), "attachment") + ", all as they should be" }},
		{"files", files, func(*Evidence) string { return "each device-info file is an attachment's" }},
		{"holders", holders, func(f *Evidence) string { return Count(len(f.VFs), "VF") + ", none held twice" }},
		{"given", given, nil},
		{"leftovers", leftovers, func(f *Evidence) string { return "no VF that nobody holds has a VLAN, trust or another's MAC" }},
		{"addresses", addresses, func(*Evidence) string { return "no two VFs have the same MAC" }},
		{"drivers", drivers, func(*Evidence) string { return "each VF and vDPA device has a driver" }},
		{"plugin", plugin, func(*Evidence) string { return "the devinfo plugin is installed, and is of this build" }},
		{"settings", settings, func(*Evidence) string { return "the node settings can be used" }},
		{"networks", networks, func(f *Evidence) string {
			return Count(len(f.Live.Networks), "network configuration") + " with devinfo, nothing wrong"
		}},
		{"directories", directories, func(*Evidence) string { return "the directories of CNI and CDI are there" }},
		{"runtime", runtime, func(*Evidence) string { return "the container runtime offers NRI" }},
		{"offer", offer, func(f *Evidence) string {
			if f.Offer == nil {
				return ""
			}
			offered := 0
			for _, d := range f.Offer.Devices {
				if d.Why == "" {
					offered++
				}
			}
			return Count(offered, "device") + " offered by the rules"
		}},
		{"sight", sight, nil},
	}
}

// Diagnose returns the answers of all checks, in order.
func Diagnose(f *Evidence) (all []Answer) {
	for _, c := range questions() {
		list := c.look(f)
		if len(list) == 0 && c.well != nil {
			if text := c.well(f); text != "" {
				list = []Answer{{Level: OK, Text: text}}
			}
		}
		for _, a := range list {
			a.Check = c.name
			all = append(all, a)
		}
	}
	return all
}

// Worst is the gravest level of all answers; OK if there are none.
func Worst(all []Answer) Level {
	order := []Level{OK, Info, Unknown, Warning, Error}
	worst := OK
	for _, a := range all {
		if slices.Index(order, a.Level) > slices.Index(order, worst) {
			worst = a.Level
		}
	}
	return worst
}

// Count is a number of things, of a word with a plural in -s.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
