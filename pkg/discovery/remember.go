package discovery

import "devinfo-cni.io/pkg/link"

// Remember asks each PF once for its mode, and devlink for its ports: for who looks at many
// devices. It takes nil, too.
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
