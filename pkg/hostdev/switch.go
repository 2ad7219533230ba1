package hostdev

import "devinfo-cni.io/pkg/link"

// Switches asks for the representors of a PF, which is named by its PCI address.
type Switches interface {
	Switchdev(pf string) (bool, error)
	Representor(pf string, flavour link.Flavour, number int) (string, bool, error)
}

// Remember asks each PF once for its mode, and devlink for its ports, for callers that look at
// many devices. s may be nil.
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

// Switchdev is the Switches'.
func (s switches) Switchdev(pf string) (bool, error) { return s.mode(pf) }
