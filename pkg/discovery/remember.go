package discovery

import (
	"sync"

	"devinfo-cni.io/pkg/link"
)

// Remember asks each PF for its mode once, and one question at a time: for who looks at many
// devices.
func Remember(s Switches) Switches {
	return &switches{Switches: s, modes: map[string]func() (bool, error){}}
}

type switches struct {
	Switches
	mu    sync.Mutex
	modes map[string]func() (bool, error)
}

// Switchdev is the Switches'.
func (s *switches) Switchdev(pf string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
