// Package check compares what ADD recorded of an attachment in the journal with what is
// there now: the device-info file, the CDI spec, the device, the interface in the pod's
// network namespace. The plugin's CHECK and devinfoctl read the same comparison. It only
// reads, and asks nothing of the plugins that ADD ran.
package check

import (
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
)

// Checker looks at one host, which may be a captured one.
type Checker struct {
	Finder *discovery.Finder

	// Dir is a directory of device-info files or CDI specs, by its absolute path on the
	// host.
	Dir func(path string) *store.Dir

	// NetnsGone reports whether a path no longer leads to a network namespace. Only State,
	// Ended and Check use it and BootID.
	NetnsGone func(path string) (bool, error)
	BootID    string // of this boot; "" = unknown

	// Explain searches for the device once more, by the interface alone or, if that has
	// none, by what ADD was asked for: even in a conflict, Fact.Now and Fact.Source then
	// show what the kernel itself says.
	Explain bool
}

// A Verdict is the outcome of comparing one fact.
type Verdict string

// The verdicts. With Differs or Gone there is a Report.Problem.
const (
	Same        Verdict = "same"         // journal, file and kernel agree, as far as they say something
	Changed     Verdict = "changed"      // an optional fact is not what ADD wrote, or the kernel now says otherwise
	Declared    Verdict = "declared"     // the kernel says otherwise, and the configuration overrules it
	Differs     Verdict = "differs"      // it is another device
	Gone        Verdict = "gone"         // it was there at ADD
	NotStated   Verdict = "not stated"   // the kernel does not say
	NotRecorded Verdict = "not recorded" // the file does not say
	Unseen      Verdict = "unknown"      // we lack permission to look
)

// An Item is one thing that was compared. Unknown values are empty.
type Item struct {
	Fact    string  `json:"fact"` // "interface", or a key of the file: "pci.rdma-device"
	Journal string  `json:"journal,omitempty"`
	File    string  `json:"file,omitempty"`
	Now     string  `json:"now,omitempty"`    // by the kernel, or by the result of the plugins before
	Source  string  `json:"source,omitempty"` // of Now
	Verdict Verdict `json:"verdict"`
}

// Change says in words what has changed about a fact whose verdict is Changed.
func (f Item) Change() string {
	if f.Now == "" || f.Journal != "" && !differ(f.Fact, f.Journal, f.Now) {
		return fmt.Sprintf("%s: the device-info file has %q, but ADD wrote %q", f.Fact, f.File, f.Journal)
	}
	return fmt.Sprintf("%s has changed since ADD, from %q to %q", f.Fact, f.File, f.Now)
}

// Report is the comparison of one attachment.
type Report struct {
	Facts    []Item
	Problem  *Error   // the first; nil = the attachment is as it should be
	Warnings []string // without the Facts that have Changed
	// Blind says why something could not be read, usually for lack of permission; nil =
	// everything was. The rest was compared without it.
	Blind       *Error
	NotCompared []string // in words
}

// Changed are the facts that have changed since ADD.
func (r *Report) Changed() (list []Item) {
	for _, f := range r.Facts {
		if f.Verdict == Changed {
			list = append(list, f)
		}
	}
	return list
}

// Err is the error of CHECK: the problem, else what could not be read, else nil.
func (r *Report) Err() *Error {
	if r.Problem != nil {
		return r.Problem
	}
	return r.Blind
}

func (r *Report) row(f Item) { r.Facts = append(r.Facts, f) }

func (r *Report) fail(err *Error) {
	if r.Problem == nil {
		r.Problem = err
	}
}

// leaveOut goes on without the network namespace.
func (r *Report) leaveOut(t *discovery.Target, err error) {
	why := err.Error()
	if errors.Is(err, fs.ErrPermission) {
		why = "entering the network namespace takes root"
	}
	r.row(Item{Fact: "interface", Journal: t.IfName, Source: t.Netns, Verdict: Unseen})
	r.blind(err, "the interface in "+t.Netns+": "+why)
	t.Netns = ""
}

func (r *Report) blind(err error, what string) {
	if r.Blind == nil {
		r.Blind = &Error{Unreadable, err}
	}
	r.NotCompared = append(r.NotCompared, what)
}

// Check gives the state of an attachment, which is the verdict that everybody prints, and,
// unless there is nothing left to compare, the comparison with what its ADD was asked. It
// takes what [journal.Journal.Get] returned.
func (a *Checker) Check(e *journal.Entry, err error) (State, *Report) {
	state, why := a.State(e, err)
	r := &Report{Facts: []Item{}}
	kind, over := state.Over()
	switch {
	case state == Adding:
		r.Warnings = []string{why}
	case over:
		r.Problem = &Error{kind, errors.New(why)}
	case e == nil:
		r.blind(err, why)
	default:
		t, err := Target(e)
		if err != nil {
			r.Warnings = append(r.Warnings, err.Error())
		}
		if t.Netns != "" && state == Unknown { // maybe for that
			if _, err := a.NetnsGone(t.Netns); err != nil {
				r.leaveOut(&t, err)
			}
		}
		a.compare(r, e, t)
		switch {
		case r.Problem != nil:
			state = kinds[r.Problem.Kind].state
		case r.Blind != nil:
			state = Unknown
		}
	}
	return state, r
}
