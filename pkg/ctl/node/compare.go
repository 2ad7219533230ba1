package node

import "devinfo-cni.io/pkg/audit"

// Comparison is what ADD left of one attachment, against what is there now.
type Comparison struct {
	Attachment  string       `json:"attachment"`
	Pod         string       `json:"pod,omitempty"`
	Claim       string       `json:"claim,omitempty"`
	State       audit.State  `json:"state"`
	File        string       `json:"file,omitempty"` // path of the device-info file; "" = ADD wrote none
	Facts       []audit.Fact `json:"facts"`
	Problem     string       `json:"problem,omitempty"` // what CHECK fails with
	Remedy      string       `json:"remedy,omitempty"`
	Warnings    []string     `json:"warnings,omitempty"` // what CHECK warns of
	NotCompared []string     `json:"notCompared,omitempty"`
}

// Compare does what CHECK does, with what the journal knows.
func (n *Node) Compare(a Attachment) Comparison {
	if a.entry == nil && a.unread == nil {
		return a.compareRecord()
	}
	state, r := n.auditor.Audit(a.entry, a.unread)
	c := Comparison{
		Attachment: a.String(), Pod: a.Pod, Claim: a.Claim, State: state, File: a.File, Facts: r.Facts, Warnings: r.Warnings, NotCompared: r.NotCompared,
	}
	for _, f := range r.Changed() {
		c.Warnings = append(c.Warnings, f.Change())
	}
	switch {
	case a.record != "" && a.Why != "" && (a.State == audit.Abandoned || a.State == audit.Deleting):
		c.State, c.Problem, c.Remedy = a.State, a.Why, a.claimRemedy()
	case r.Problem != nil:
		c.Problem, c.Remedy = n.text(r.Problem.Error()), r.Problem.Remedy()
	}
	return c
}

// CompareByTwo is Compare, with sriovnet's opinion of each representor.
func (n *Node) CompareByTwo(a Attachment) Comparison {
	c := n.Compare(a)
	c.Warnings = append(c.Warnings, n.secondOpinion(func(representor string) *string {
		for i, f := range c.Facts {
			if f.Now == representor && isRepresentor(f.Fact) {
				return &c.Facts[i].Source
			}
		}
		return nil
	})...)
	return c
}
