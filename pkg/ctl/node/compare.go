package node

import (
	"cmp"
	"runtime"
	"sync"
	"sync/atomic"

	"devinfo-cni.io/pkg/audit"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/opinion"
)

// Comparison is what ADD left of one attachment, against what is there now.
type Comparison struct {
	subject
	File        string       `json:"file,omitempty"` // path of the device-info file; "" = ADD wrote none
	Facts       []audit.Fact `json:"facts"`
	Problem     string       `json:"problem,omitempty"` // what CHECK fails with
	Remedy      string       `json:"remedy,omitempty"`
	Warnings    []string     `json:"warnings,omitempty"` // what CHECK warns of
	NotCompared []string     `json:"notCompared,omitempty"`

	Title string      `json:"-"` // the attachment, for people
	Of    *Attachment `json:"-"`
}

func (a *Attachment) comparison() Comparison {
	return Comparison{Title: a.Short(), Of: a, subject: a.subject(), File: a.File, Facts: []audit.Fact{}}
}

// became notes the state that a comparison has found.
func (c *Comparison) became(s audit.State) {
	c.Of.State = s
	c.subject = c.Of.subject()
}

// Judge does what CHECK does, with what the journal knows, and gives each attachment its
// verdict.
func (n *Node) Judge(list []Attachment) {
	memo := &switches{Switches: n.Finder.Switches}
	each(len(list), func(i int) {
		c := n.compare(n.auditorWith(memo), list[i])
		list[i].State, list[i].Why, list[i].Verdict = c.Of.State, cmp.Or(c.Problem, list[i].Why), &c
	})
}

// Explain compares as Judge does, and adds what the kernel says even where sources contradict
// each other, and sriovnet's opinion of each representor.
func (n *Node) Explain(list []Attachment) []Comparison {
	memo := &switches{Switches: n.Finder.Switches}
	if n.witness != nil {
		memo.Switches = n.witness.Switches
	}
	all := make([]Comparison, len(list))
	each(len(list), func(i int) {
		var witness *opinion.Witness
		auditor := n.auditorWith(memo)
		if n.witness != nil {
			witness = &opinion.Witness{Switches: memo, Ask: n.witness.Ask}
			auditor = n.auditorWith(witness)
		}
		auditor.Explain = true
		c := n.compare(auditor, list[i])
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

func (n *Node) compare(auditor *audit.Auditor, a Attachment) Comparison {
	if a.entry == nil && a.unread == nil {
		return a.compareRecord()
	}
	state, r := auditor.Audit(a.entry, a.unread)
	was, c := a.State, a.comparison()
	c.Facts, c.Warnings, c.NotCompared = r.Facts, r.Warnings, r.NotCompared
	c.became(state)
	for _, f := range r.Changed() {
		c.Warnings = append(c.Warnings, f.Change())
	}
	switch {
	case a.record != "" && a.Why != "" && (was == audit.Abandoned || was == audit.Deleting):
		c.became(was)
		c.Problem, c.Remedy = a.Why, a.claimRemedy()
	case r.Problem != nil:
		c.Problem, c.Remedy = n.text(r.Problem.Error()), r.Problem.Remedy()
	}
	return c
}

// auditorWith is the node's auditor, with these switches.
func (n *Node) auditorWith(s discovery.Switches) *audit.Auditor {
	auditor, finder := n.auditor, *n.Finder
	finder.Switches, auditor.Finder = s, &finder
	return &auditor
}

// switches asks one question at a time, and each PF for its mode once.
type switches struct {
	discovery.Switches
	mu    sync.Mutex
	modes map[string]func() (bool, error)
}

// Switchdev is the Switches'.
func (s *switches) Switchdev(pf string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.modes == nil {
		s.modes = map[string]func() (bool, error){}
	}
	if s.modes[pf] == nil {
		s.modes[pf] = sync.OnceValues(func() (bool, error) { return s.Switches.Switchdev(pf) })
	}
	return s.modes[pf]()
}

// Representor is the Switches'.
func (s *switches) Representor(pf string, flavour link.Flavour, number int) (string, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Switches.Representor(pf, flavour, number)
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
