package node

import (
	"runtime"
	"strings"
	"sync"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/host/hostdev"
)

// Comparison compares the state after ADD of one attachment with its present state.
type Comparison struct {
	Identity
	File        string       `json:"file,omitempty"` // path of the device-info file; "" = ADD wrote none
	Facts       []check.Item `json:"facts"`
	Problem     string       `json:"problem,omitempty"` // the error of CHECK
	Remedy      string       `json:"remedy,omitempty"`
	Reason      string       `json:"reason,omitempty"`   // why ADD found no device
	Warnings    []string     `json:"warnings,omitempty"` // the warnings of CHECK
	NotCompared []string     `json:"notCompared,omitempty"`
}

// Judge compares each attachment as CHECK does, as far as the journal allows, and sets its Verdict. If explain is
// true, it adds the values that the kernel reports, even if sources contradict each other.
func (n *Node) Judge(list []Attachment, explain bool) {
	memo := hostdev.CacheEswitches(n.Finder.Eswitches)
	var all sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range list {
		turns <- struct{}{}
		all.Go(func() {
			checker, finder := n.checker, *n.Finder
			finder.Eswitches = memo
			checker.Finder, checker.Explain = &finder, explain
			c := n.compare(&checker, &list[i])
			c.Identity, list[i].Verdict = list[i].Identity, c
			<-turns
		})
	}
	all.Wait()
}

// compare sets the state of an attachment, the reason, and the present name of the representor, which programs rename.
func (n *Node) compare(checker *check.Checker, a *Attachment) *Comparison {
	c := &Comparison{File: a.File, Facts: []check.Item{}}
	if a.entry == nil && a.unread == nil {
		a.compareRecord(c)
		return c
	}
	state, r := checker.Check(a.entry, a.unread)
	c.Facts, c.Warnings, c.NotCompared = r.Facts, r.Warnings, r.NotCompared
	for _, f := range r.Facts {
		if strings.HasSuffix(f.Fact, ".representor-device") && f.Now != "" {
			a.Representor = f.Now
		}
	}
	if a.entry != nil {
		c.Reason = a.entry.Reason
	}
	for _, f := range r.Changed() {
		c.Warnings = append(c.Warnings, f.Change())
	}
	if a.record != "" && (a.State == check.Undeleted || a.State == check.Deleting) {
		a.compareRecord(c)
		return c
	}
	a.State = state
	switch {
	case r.Problem != nil:
		a.Why = n.text(r.Problem.Error())
		c.Problem, c.Remedy = a.Why, r.Problem.Remedy()
	case r.ReadError != nil:
		a.Why = n.text(r.ReadError.Error())
	}
	return c
}
