package custody

import (
	"errors"
	"fmt"
	"net"

	"devinfo-cni.io/pkg/link"
)

// Whats are all things of a device that are given back.
func Whats() []string {
	return []string{Away, Driver, Name, MTU, MAC, link.VFMAC, link.VFVLAN, link.VFTrust, link.VFSpoofCheck, link.VFLinkState, link.VFRate, link.VFGUID}
}

// Restore makes a device what it was, and tells what that took. It tries once: repeat it on
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
		if did, err = h.restorePFMAC(f, now); err != nil {
			return nil, &Mismatch{[]string{link.VFMAC}, err}
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
	return judge(did, tried, left)
}

// restorePFMAC restores the MAC that the PF sets for a VF before the VF is bound to a driver. An igbvf
// interface that is bound while its PF has set a MAC refuses its own MAC until it is bound again.
func (h *Devices) restorePFMAC(f, now Former) (did []string, err error) {
	if f.VF == nil || now.VF == nil {
		return nil, nil
	}
	list, err := h.leftOnPF(f, *now.VF)
	for _, s := range list {
		if s.what == link.VFMAC {
			return []string{s.what}, s.set()
		}
	}
	return nil, err
}

// judge tells what was set from what could not be.
func judge(did []string, tried map[string]error, left []setting) ([]string, error) {
	m := new(Mismatch)
	for _, s := range left {
		m.What = append(m.What, s.what)
		switch err := tried[s.what]; {
		case m.Err == nil:
			m.Err = err
		case err != nil:
			m.Err = fmt.Errorf("%w; %w", m.Err, err)
		}
		delete(tried, s.what)
	}
	for _, what := range Whats() {
		if _, ok := tried[what]; ok {
			did = append(did, what)
		}
	}
	switch {
	case m.What == nil:
		return did, nil
	case m.Err == nil:
		m.Err = errors.New("the kernel accepted the change, but the value is still wrong")
	}
	return did, m
}

// A setting is one thing of a device that is not as it was.
type setting struct {
	what string
	onPF bool
	set  func() error
}

// left are the settings that are not as they were, the name last.
func (h *Devices) left(f Former) (list []setting, err error) {
	now, err := h.now(f)
	if err != nil {
		return nil, err
	}
	if f.IfName != "" && now.IfName == "" {
		return nil, fmt.Errorf("%s, %s: %w", f.Device, f.IfName, ErrAway)
	}
	if f.VF != nil && now.VF != nil {
		if list, err = h.leftOnPF(f, *now.VF); err != nil {
			return nil, err
		}
	}
	if f.IfName == "" {
		return list, nil
	}
	change := func(what string, differs bool, to link.Change) {
		if differs {
			list = append(list, setting{what, false, func() error { return h.links.Change(now.IfName, to) }})
		}
	}
	mac, _ := net.ParseMAC(f.MAC)
	change(MTU, f.MTU != now.MTU, link.Change{MTU: f.MTU})
	change(MAC, f.MAC != "" && f.MAC != now.MAC, link.Change{MAC: mac})
	change(Name, f.IfName != now.IfName, link.Change{Name: f.IfName})
	return list, nil
}

// leftOnPF is the same for what a PF sets for a VF. Of what was not noted all stays as it is.
func (h *Devices) leftOnPF(f Former, now link.VFSettings) (list []setting, err error) {
	fn, err := h.fn(f.Device)
	if err != nil {
		return nil, err
	}
	pf, index, ok, err := h.onPF(fn)
	if !ok {
		return nil, err
	}
	for _, what := range f.VF.Unlike(now) {
		list = append(list, setting{what, true, func() error { return h.links.SetVF(pf, index, what, *f.VF) }})
	}
	return list, nil
}
