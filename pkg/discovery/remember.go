package discovery

import (
	"sync"

	"devinfo-cni.io/pkg/link"
)

// Remember asks each PF for its mode once, and one question at a time: for who looks at many
// devices.
func Remember(s Switches) Switches {
	return &switches{Switches: s, modes: map[string]mode{}}
}

type switches struct {
	Switches
	mu    sync.Mutex
	modes map[string]mode
}

type mode struct {
	on  bool
	err error
}

// Switchdev is the Switches'.
func (s *switches) Switchdev(pf string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, known := s.modes[pf]
	if !known {
		m.on, m.err = s.Switches.Switchdev(pf)
		s.modes[pf] = m
	}
	return m.on, m.err
}

// Representor is the Switches'.
func (s *switches) Representor(pf string, flavour link.Flavour, number int) (string, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Switches.Representor(pf, flavour, number)
}
