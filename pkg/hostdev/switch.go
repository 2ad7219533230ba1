package hostdev

import "devinfo-cni.io/pkg/link"

// Switches looks up representors on the switch of a PF, by the PF's PCI address. [*link.Kernel]
// implements it.
type Switches interface {
	Switchdev(pf string) (bool, error)
	Representor(pf string, flavour link.Flavour, number int) (string, bool, error)
}

// Remember returns Switches that read the mode and the devlink ports of each PF only once, for
// callers that look at many devices. s may be nil.
func Remember(s Switches) Switches {
	if s == nil {
		return nil
	}
	if e, ok := s.(interface{ Once() link.Eswitch }); ok {
		s = e.Once()
	}
	return switches{s, link.Once(s.Switchdev)}
}

type switches struct {
	Switches
	mode func(pf string) (bool, error)
}

func (s switches) Switchdev(pf string) (bool, error) { return s.mode(pf) }
