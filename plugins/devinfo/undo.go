package devinfo

import (
	"slices"

	"devinfo-cni.io/pkg/core/journal"
)

// undo is what an ADD has done, as a stack of inverses, for the case that a later step fails.
type undo struct {
	inverses []inverse
	entry    *journal.Entry // the attachment's entry in the journal, locked; nil = none
}

type inverse struct {
	of    func() error
	clean bool // only if all later steps have been undone: otherwise DEL, GC or the next ADD need the entry as it is
}

func (u *undo) push(of func() error) { u.inverses = append(u.inverses, inverse{of, false}) }

func (u *undo) pushClean(of func() error) { u.inverses = append(u.inverses, inverse{of, true}) }

// run takes everything back, last first. A failure does not stop the rest, except what must be clean.
func (u *undo) run() (errs []error) {
	for _, i := range slices.Backward(u.inverses) {
		if i.clean && len(errs) > 0 {
			break
		}
		if err := i.of(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func (u *undo) unlock() { u.entry.Unlock() }
