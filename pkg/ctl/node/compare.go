package node

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"devinfo-cni.io/pkg/check"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/opinion"
)

// Comparison is what ADD left of one attachment, against what is there now.
type Comparison struct {
	subject
	File        string       `json:"file,omitempty"` // path of the device-info file; "" = ADD wrote none
	Facts       []check.Item `json:"facts"`
	Problem     string       `json:"problem,omitempty"` // what CHECK fails with
	Remedy      string       `json:"remedy,omitempty"`
	Warnings    []string     `json:"warnings,omitempty"` // what CHECK warns of
	NotCompared []string     `json:"notCompared,omitempty"`

	Title string      `json:"-"` // the attachment, for people
	Of    *Attachment `json:"-"`

	blind string // why something could not be read; "" = all could
}

func (a *Attachment) comparison() Comparison {
	return Comparison{Title: a.Short(), Of: a, subject: a.subject(), File: a.File, Facts: []check.Item{}}
}

// became notes the state that a comparison has found.
func (c *Comparison) became(s check.State) {
	c.Of.State = s
	c.subject = c.Of.subject()
}

// Judge does what CHECK does, with what the journal knows, and gives each attachment its
// verdict.
func (n *Node) Judge(list []Attachment) {
	memo := discovery.Remember(n.Finder.Switches)
	each(len(list), func(i int) {
		c := n.compare(n.checkerWith(memo), list[i])
		list[i].State, list[i].Why, list[i].Verdict = c.Of.State, cmp.Or(c.Problem, c.blind, list[i].Why), &c
	})
}

// Explain compares as Judge does, and adds what the kernel says even where sources contradict
// each other, and sriovnet's opinion of each representor.
func (n *Node) Explain(list []Attachment) []Comparison {
	memo := discovery.Remember(n.Finder.Switches)
	if n.witness != nil {
		memo = discovery.Remember(n.witness.Switches)
	}
	all := make([]Comparison, len(list))
	each(len(list), func(i int) {
		var witness *opinion.Witness
		checker := n.checkerWith(memo)
		if n.witness != nil {
			witness = &opinion.Witness{Switches: memo, Ask: n.witness.Ask}
			checker = n.checkerWith(witness)
		}
		checker.Explain = true
		c := n.compare(checker, list[i])
		c.Warnings = append(c.Warnings, secondOpinion(witness, func(representor string) *string {
			for f := range c.Facts {
				if c.Facts[f].Now == representor && isRepresentor(c.Facts[f].Fact) {
					return &c.Facts[f].Source
				}
			}
			return nil
		})...)
		all[i] = c
	})
	return all
}

func (n *Node) compare(checker *check.Checker, a Attachment) Comparison {
	if a.entry == nil && a.unread == nil {
		return a.compareRecord()
	}
	state, r := checker.Check(a.entry, a.unread)
	was, c := a.State, a.comparison()
	c.Facts, c.Warnings, c.NotCompared = r.Facts, r.Warnings, r.NotCompared
	c.became(state)
	for _, f := range r.Changed() {
		c.Warnings = append(c.Warnings, f.Change())
	}
	switch {
	case a.record != "" && a.Why != "" && (was == check.Abandoned || was == check.Deleting):
		c.became(was)
		c.Problem, c.Remedy = a.Why, a.claimRemedy()
	case r.Problem != nil:
		c.Problem, c.Remedy = n.text(r.Problem.Error()), r.Problem.Remedy()
	case r.Blind != nil:
		c.blind = n.text(r.Blind.Error())
	}
	return c
}

// checkerWith is the node's checker, with these switches.
func (n *Node) checkerWith(s discovery.Switches) *check.Checker {
	checker, finder := n.checker, *n.Finder
	finder.Switches, finder.Interfaces, checker.Finder = s, &lastAsked{Interfaces: finder.Interfaces}, &finder
	return &checker
}

// lastAsked asks once for the interface of one attachment, of which an explanation has to know
// twice.
type lastAsked struct {
	discovery.Interfaces
	netns, name string
	found       link.Interface
	err         error
}

// Interface is the Interfaces'.
func (l *lastAsked) Interface(netns, name string) (link.Interface, error) {
	if l.netns != netns || l.name != name {
		l.netns, l.name = netns, name
		l.found, l.err = l.Interfaces.Interface(netns, name)
	}
	return l.found, l.err
}

// each calls f with the numbers below n, as many at a time as there are processors.
func each(n int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	all.Wait()
}

// Hear records the host's answers about representors for a second opinion, sriovnet's.
func (n *Node) Hear(sriovnet func(pf string, flavour link.Flavour, number int) (string, error)) {
	n.witness = &opinion.Witness{Switches: n.Finder.Switches, Ask: sriovnet}
	n.Finder.Switches = n.witness
}

// secondOpinion adds to the source of each representor that was found since the last
// time what sriovnet finds; source is nil for one that is not shown. A difference
// without such a source is a warning.
func secondOpinion(w *opinion.Witness, source func(representor string) *string) (warnings []string) {
	if w == nil {
		return nil
	}
	for _, o := range w.Opinions() {
		if s := source(o.Ours); s != nil && o.Ours != "" {
			*s += "; " + o.String()
		} else if o.Ours != o.Theirs {
			warnings = append(warnings, fmt.Sprintf("%s: %s, and so do OVN-Kubernetes, ovs-cni and the SR-IOV operators; devinfo finds %s",
				o.Function, o, cmp.Or(o.Ours, "nothing")))
		}
	}
	return warnings
}

func isRepresentor(key string) bool { return strings.HasSuffix(key, ".representor-device") }
