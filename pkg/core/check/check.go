// Package check compares the journal's record of an attachment with its current state: the device-info file,
// the CDI spec, the device, and the interface in the pod's network namespace. The plugin's CHECK and devinfoctl
// use the same comparison. It only reads, and does not run the delegated plugins.
package check

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// Checker checks attachments on one host, which may be a captured one.
type Checker struct {
	Finder *discovery.Finder

	// Dir opens a directory of device-info files or CDI specs by its absolute path on the host.
	Dir func(path string) *store.Dir

	// Journal tells which attachments are stale. Only State and Check use it.
	Journal *journal.Journal

	// Explain makes Check search again without the device-info file, first by the interface alone and then by
	// the recorded request. Fact.Now and Fact.Source then show the kernel's facts even if sources conflict.
	Explain bool
}

type Verdict string

// For Differs and Gone, Report.Problem is set.
const (
	Same        Verdict = "same"         // journal, file and kernel agree, as far as they have a value
	Changed     Verdict = "changed"      // an optional fact differs from ADD's value, in the file or in the kernel
	Declared    Verdict = "declared"     // the kernel has another value, which the configuration overrides
	Differs     Verdict = "differs"      // the value belongs to another device
	Gone        Verdict = "gone"         // it existed at ADD and is missing now
	NotStated   Verdict = "not stated"   // the kernel has no value
	NotRecorded Verdict = "not recorded" // the file has no value
	Unseen      Verdict = "unknown"      // no permission to read it
)

// An Item is one compared fact. Unknown values are empty.
type Item struct {
	Fact    string  `json:"fact"` // "interface", or a key of the file: "pci.rdma-device"
	Journal string  `json:"journal,omitempty"`
	File    string  `json:"file,omitempty"`
	Now     string  `json:"now,omitempty"`    // from the kernel, or from the previous plugins' result
	Source  string  `json:"source,omitempty"` // of Now
	Verdict Verdict `json:"verdict"`
}

// Change describes the change of a fact whose verdict is Changed.
func (i Item) Change() string {
	if i.Now == "" || i.Journal != "" && !differ(i.Fact, i.Journal, i.Now) {
		return fmt.Sprintf("%s: the device-info file has %q, but ADD wrote %q", i.Fact, i.File, i.Journal)
	}
	return fmt.Sprintf("%s has changed since ADD, from %q to %q", i.Fact, i.File, i.Now)
}

type Report struct {
	Facts    []Item
	Problem  *Error   // the first problem; nil = none
	Warnings []string // all warnings except those about changed facts, which Changed returns
	// ReadError is the first read error, usually missing permission. The facts that could be read are still
	// compared.
	ReadError   *Error
	NotCompared []string // objects that were not compared, with the reason
}

func (r *Report) Changed() (list []Item) {
	for _, f := range r.Facts {
		if f.Verdict == Changed {
			list = append(list, f)
		}
	}
	return list
}

// Err returns the error of CHECK: the problem, else the first read error, else nil.
func (r *Report) Err() *Error { return cmp.Or(r.Problem, r.ReadError) }

func (r *Report) fail(err *Error) {
	if r.Problem == nil {
		r.Problem = err
	}
}

func (r *Report) skipNetns(t *discovery.Target, err error) {
	why := err.Error()
	if errors.Is(err, fs.ErrPermission) {
		why = "entering the network namespace takes root"
	}
	r.Facts = append(r.Facts, Item{Fact: "interface", Journal: t.IfName, Source: t.Netns, Verdict: Unseen})
	r.couldNotRead(err, "the interface in "+t.Netns+": "+why)
	t.Netns = ""
}

func (r *Report) couldNotRead(err error, what string) {
	if r.ReadError == nil {
		r.ReadError = &Error{Unknown, err}
	}
	r.NotCompared = append(r.NotCompared, what)
}

// Check returns the state of an attachment and the comparison with its ADD request. The comparison is empty if
// the state rules it out. e and err are the results of [journal.Journal.Get].
func (c *Checker) Check(e *journal.Entry, err error) (State, *Report) {
	state, why := c.State(e, err)
	r := &Report{Facts: []Item{}}
	switch {
	case state == Adding || state == Refused: // no attachment, so nothing of it is wrong
		r.Warnings = []string{why}
	case state == Deleting: // by cni-dra-driver
	case state.Incomparable():
		r.Problem = &Error{state, errors.New(why)}
	case e == nil:
		r.couldNotRead(err, why)
	default:
		t, err := Target(e)
		if err != nil {
			r.Warnings = append(r.Warnings, err.Error())
		}
		if state == Unknown {
			c.blind(r, &t, why)
		}
		c.compare(r, e, t)
		switch {
		case r.Problem != nil:
			state = r.Problem.State
		case r.ReadError != nil:
			state = Unknown
		}
	}
	return state, r
}

// blind records why State could not tell the state: the network namespace, which is then not compared, or something else,
// which the comparison may be able to read now.
func (c *Checker) blind(r *Report, t *discovery.Target, why string) {
	if t.Netns != "" {
		if _, err := c.Journal.NetnsGone(t.Netns); err != nil {
			r.skipNetns(t, err)
			return
		}
	}
	r.couldNotRead(errors.New(why), why)
}
