package restore

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"devinfo-cni.io/pkg/link"
)

// The settings that are restored, beside those that the PF of a VF has: see [link.VFSettings].
const (
	Away   = "away" // the interface is not back, which no setting changes
	Driver = "driver"
	Name   = "name" // of the interface
	MTU    = "mtu"
	MAC    = "mac"
)

// Whats are all settings, in the order in which they are reported.
func Whats() []string {
	return []string{Away, Driver, Name, MTU, MAC, link.AltNames, link.Alias, link.Group, link.TxQueue, link.Promisc, link.AllMulti,
		link.VFMAC, link.VFVLAN, link.VFTrust, link.VFSpoofCheck, link.VFLinkState, link.VFRate, link.VFGUID}
}

// Mismatch is the error of settings that could not be restored.
type Mismatch struct {
	What []string // see [Whats]
	Err  error    // why not
}

func (m *Mismatch) Error() string {
	return fmt.Sprintf("%s: not as before the ADD: %v", strings.Join(m.What, ", "), m.Err)
}

func (m *Mismatch) Unwrap() error { return m.Err }

// Restore makes a device what it was. It returns the settings that it changed. It tries once: repeat it on
// [ErrAway] and on a [*Mismatch]. On [ErrGone] nothing is left to restore.
func (h *Devices) Restore(f Former) (did []string, err error) {
	if err := h.unbound(f.Device); err != nil {
		return nil, &Mismatch{[]string{Driver}, err}
	}
	now, err := h.now(f)
	if err != nil {
		return nil, err
	}
	if f.Bus == "pci" && (now.Driver != f.Driver || now.Override != f.Override) {
		// An igbvf interface that is bound while its PF has set a MAC refuses its own until it is bound again.
		for _, s := range h.leftOnPF(f, now) {
			if s.what == link.VFMAC {
				if err := s.set(); err != nil {
					return nil, &Mismatch{[]string{s.what}, err}
				}
				did = append(did, s.what)
			}
		}
		if err := h.bind(f.Device, f.Driver, f.Override); err != nil {
			return did, &Mismatch{[]string{Driver}, err}
		}
		did = append(did, Driver)
	}
	tried := map[string]error{}
	// A VF may not be able to set its MAC while its PF has set one, and a PF may take the
	// VF's own for the one that was set: so the VF goes first, and again after its PF.
	for pass := range 3 {
		left, err := h.left(f)
		if err != nil {
			return did, err
		}
		for _, s := range left {
			if s.onPF == (pass == 1) {
				tried[s.what] = s.set()
			}
		}
	}
	left, err := h.left(f)
	if err != nil {
		return did, err
	}
	m := &Mismatch{}
	for _, s := range left {
		m.What = append(m.What, s.what)
		if err := tried[s.what]; m.Err == nil {
			m.Err = err
		} else if err != nil {
			m.Err = fmt.Errorf("%w; %w", m.Err, err)
		}
		delete(tried, s.what)
	}
	for _, what := range Whats() {
		if _, ok := tried[what]; ok {
			did = append(did, what)
		}
	}
	if left == nil {
		return did, nil
	}
	if m.Err == nil {
		m.Err = errors.New("the kernel accepted the change, but the value is still wrong")
	}
	return did, m
}

// setting is a setting of a device that is not as it was.
type setting struct {
	what string
	onPF bool
	set  func() error
}

// left returns the settings that are not as they were, altnames first and the name last.
func (h *Devices) left(f Former) ([]setting, error) {
	now, err := h.now(f)
	if err != nil {
		return nil, err
	}
	list := h.leftOnPF(f, now)
	if f.IfName == "" {
		return list, nil
	}
	if now.IfName == "" {
		return nil, fmt.Errorf("%s, %s: %w", f.Device, f.IfName, ErrAway)
	}
	if f.Settings != nil {
		for _, what := range f.Settings.Unlike(*now.Settings) {
			set := func() error { return h.links.Set(now.IfName, what, *f.Settings) }
			if what == link.AltNames { // first, because one of them may be the noted name
				set = func() error { return h.setAltNames(now, f.Settings.AltNames) }
			}
			list = append(list, setting{what, false, set})
		}
	}
	mac, _ := net.ParseMAC(f.MAC)
	for _, s := range []struct {
		what    string
		differs bool
		to      link.Change
	}{
		{MTU, f.MTU != now.MTU, link.Change{MTU: f.MTU}},
		{MAC, f.MAC != "" && f.MAC != now.MAC, link.Change{MAC: mac}},
		{Name, f.IfName != now.IfName, link.Change{Name: f.IfName}},
	} {
		if s.differs {
			list = append(list, setting{s.what, false, func() error { return h.taken(s.to.Name, h.links.Change(now.IfName, s.to)) }})
		}
	}
	return list, nil
}

// setAltNames removes the altnames that are not wanted, and then adds those that are missing.
func (h *Devices) setAltNames(now present, want []string) error {
	var errs []error
	for _, name := range now.Settings.AltNames {
		if !slices.Contains(want, name) {
			errs = append(errs, h.links.SetAltName(now.IfName, name, false))
		}
	}
	for _, name := range want {
		if !slices.Contains(now.Settings.AltNames, name) {
			errs = append(errs, h.taken(name, h.links.SetAltName(now.IfName, name, true)))
		}
	}
	return errors.Join(errs...)
}

// taken adds to the error of a name that is in use the interface that has it. If a pod has given the name to
// another device, the restore of that device frees it.
func (h *Devices) taken(name string, err error) error {
	if !errors.Is(err, syscall.EEXIST) {
		return err
	}
	i, asked := h.links.Interface("", name)
	if asked != nil {
		return err
	}
	holder := fmt.Sprintf("interface %q", i.Name)
	if i.Name != name {
		holder = "altname of " + holder
	}
	if i.Parent != "" {
		holder += " of device " + i.Parent
	}
	return fmt.Errorf("%w: %q is taken: %s", err, name, holder)
}

// leftOnPF returns those of left that a PF has for a VF. Those that were not noted stay as they are.
func (h *Devices) leftOnPF(f Former, now present) (list []setting) {
	if f.VF == nil {
		return nil
	}
	for _, what := range f.VF.Unlike(*now.VF) {
		list = append(list, setting{what, true, func() error { return h.links.SetVF(now.pf, now.index, what, *f.VF) }})
	}
	return list
}
