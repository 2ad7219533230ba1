package restore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/settings"
)

// The settings that Restore restores, in addition to [settings.VF] and [settings.Dump].
const (
	Away    = "away" // the interface is not on the node, so no setting can be restored
	Driver  = "driver"
	Reset   = "reset"          // the driver was bound again, although it had not changed; not a setting
	Stacked = settings.Stacked // something receives the frames of the interface; not a setting
	Opened  = "opened"         // a process of a pod has a device node open; not a setting
)

// SettingNames returns the settings that must be restored before the next pod may get the device, in the order of
// reports.
func SettingNames() []string {
	return slices.Concat([]string{Away, Stacked, Opened, Driver, settings.Name, settings.MTU, settings.MAC}, settings.Names(),
		[]string{settings.VFMAC, settings.VFVLAN, settings.VFTrust, settings.VFSpoofCheck, settings.VFLinkState, settings.VFRate, settings.VFGUID})
}

// resettable are the drivers that tests have unbound and bound again. The network drivers make no RDMA, vDPA or auxiliary
// devices, which would lose their parent, and the tests have only bound VFs.
var resettable = []string{"igbvf", "vfio-pci", "virtio-pci"}

// resets reports whether the driver is bound again although it has not changed.
func (d *Devices) resets(f Snapshot, now present) (bool, error) {
	auto := f.Reset == Auto && slices.Contains(resettable, f.Driver)
	if f.Bus != "pci" || f.Driver == "" || now.Driver != f.Driver || !auto && f.Reset != Always {
		return false, nil
	}
	fn, err := d.fn(f.Device)
	if err != nil || auto && fn.PF == nil {
		return false, err
	}
	carries, err := hostdev.Carries(d.sys, fn)
	return err == nil && carries == "", err
}

// Restore restores a device, and returns the settings that it changed. It makes one attempt: repeat it on [ErrNotOnNode]
// and on a [*Mismatch], unless it is harmless. [ErrGone] means that there is nothing left to restore. The next attempt
// binds a driver that was left unbound.
func (d *Devices) Restore(f Snapshot) (did []string, err error) {
	if err := d.settled(f.Device); err != nil {
		return nil, &Mismatch{Settings: []string{Driver}, Err: err}
	}
	now, err := d.now(f)
	if err != nil {
		return nil, err
	}
	resets, err := d.resets(f, now)
	switch {
	case err != nil:
	case resets && f.IfName != "" && now.IfName == "": // it may come back before the settings are compared, which would leave the reset out
		err = fmt.Errorf("%s, %s: %w", f.Device, f.IfName, ErrNotOnNode)
	case resets || now.Driver != f.Driver || now.Override != f.Override:
		did, err = d.rebind(f, now, resets)
	}
	if err != nil {
		return did, err
	}
	did, err = d.setBack(f, now, did, resets || now.Driver != f.Driver)
	m, is := errors.AsType[*Mismatch](err)
	d.alone.Store(f.Device, err == nil || is && m.Harmless)
	return did, err
}

// setBack restores values, and removes what refers to the device unless its driver has just been bound, which has ended
// it. now is the device before that.
func (d *Devices) setBack(f Snapshot, now present, did []string, bound bool) ([]string, error) {
	tried := map[string]error{}
	references, err := d.references(now, bound, tried)
	if err != nil {
		return did, err
	}
	// A VF may be unable to change its MAC while its PF has a MAC for it, and a PF may take the VF's current MAC as
	// the configured one. So set the VF first, then the PF, then the VF again.
	for pass := range 3 {
		left, err := d.left(f)
		if err != nil {
			return did, err
		}
		for _, s := range left {
			if s.onPF == (pass == 1) {
				tried[s.what] = s.set()
			}
		}
	}
	left, err := d.left(f)
	if err != nil {
		return did, err
	}
	return d.report(f, append(left, references...), tried, did)
}

// report returns what has been restored, and a [*Mismatch] for the settings that are left.
func (d *Devices) report(f Snapshot, left []setting, tried map[string]error, did []string) ([]string, error) {
	m := &Mismatch{Harmless: !f.Withhold}
	for _, s := range left {
		m.Settings, m.Harmless = append(m.Settings, s.what), m.Harmless && !slices.Contains(SettingNames(), s.what)
		if s.values != "" {
			m.Values = append(m.Values, s.values)
		}
		if err := tried[s.what]; m.Err == nil {
			m.Err = err
		} else if err != nil {
			m.Err = fmt.Errorf("%w; %w", m.Err, err)
		}
		delete(tried, s.what)
	}
	for _, what := range append(SettingNames(), slices.Sorted(maps.Keys(tried))...) {
		if _, ok := tried[what]; ok && !slices.Contains(did, what) {
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

// rebind binds the device to its driver in the snapshot. resets unbinds that driver first, which also removes what no dump
// shows, such as ntuple rules.
func (d *Devices) rebind(f Snapshot, now present, resets bool) (did []string, err error) {
	what := Driver
	if resets {
		what = Reset
		err = d.unbind(f.Device, f.Driver)
	}
	// An igbvf interface that was bound while its PF had a MAC for it cannot change its own MAC until it is bound again.
	// So restore the MAC on the PF first.
	for _, s := range d.leftOnPF(f, now) {
		if s.what == settings.VFMAC && err == nil {
			if err := s.set(); err != nil {
				return nil, &Mismatch{Settings: []string{s.what}, Err: err}
			}
			did = append(did, s.what)
		}
	}
	if err == nil {
		err = d.bind(f.Device, f.Driver, f.Override)
	}
	if err != nil {
		return did, &Mismatch{Settings: []string{Driver}, Err: err}
	}
	return append(did, what), nil
}

// setting is a setting that differs from the snapshot.
type setting struct {
	what   string
	values string // see [Mismatch]
	onPF   bool
	set    func() error
}

// left returns the settings that differ from the snapshot, altnames first and the name last.
func (d *Devices) left(f Snapshot) ([]setting, error) {
	now, err := d.now(f)
	if err != nil {
		return nil, err
	}
	list := d.leftOnPF(f, now)
	if f.IfName == "" {
		return list, nil
	}
	if now.IfName == "" {
		return nil, fmt.Errorf("%s, %s: %w", f.Device, f.IfName, ErrNotOnNode)
	}
	add := func(what string, to settings.Dump, values string) {
		list = append(list, setting{what, values, false, func() error { return d.setOf(now.is, what, to) }})
	}
	if want := f.wanted(now.Settings); want != nil {
		// An earlier pod may have given the interface the name of another device, which it cannot have then.
		names := slices.DeleteFunc(strings.Fields(want[settings.AltNames]), func(altName string) bool {
			i, err := d.links.Interface("", altName)
			return err == nil && i.Name == altName && i.Name != now.IfName
		})
		want[settings.AltNames] = strings.Join(names, " ")
		for _, what := range want.Unlike(now.Settings) { // an altname may be the interface name to restore
			add(what, want, fmt.Sprintf("%s is %s, was %s", what, now.Settings.Text(what), want.Text(what)))
		}
	}
	if f.MTU != now.MTU {
		add(settings.MTU, settings.Dump{settings.MTU: settings.Number(uint32(f.MTU))}, "")
	}
	if f.MAC != "" && f.MAC != now.MAC {
		add(settings.MAC, settings.Dump{settings.MAC: strings.ReplaceAll(f.MAC, ":", "")}, "")
	}
	if f.IfName != now.IfName {
		add(settings.Name, settings.Dump{settings.Name: f.IfName}, "")
	}
	return list, nil
}

// setOf sets a setting of an interface. It adds the current owners of names to an EEXIST error. If a pod gave such a name to
// another device, restoring that device frees it.
func (d *Devices) setOf(of link.Interface, what string, to settings.Dump) error {
	err := d.links.Set(of, what, to)
	if !errors.Is(err, syscall.EEXIST) {
		return err
	}
	for name := range strings.FieldsSeq(to[what]) {
		i, asked := d.links.Interface("", name)
		if asked != nil || i.Index == of.Index {
			continue
		}
		holder := fmt.Sprintf("interface %q", i.Name)
		if i.Name != name {
			holder = "altname of " + holder
		}
		if i.Parent != "" {
			holder += " of device " + i.Parent
		}
		err = fmt.Errorf("%w: %q is taken: %s", err, name, holder)
	}
	return err
}

// leftOnPF returns the settings on the PF that differ from the snapshot. It ignores settings without a snapshot.
func (d *Devices) leftOnPF(f Snapshot, now present) (list []setting) {
	if f.VF == nil {
		return nil
	}
	for _, what := range f.VF.Unlike(*now.VF) {
		list = append(list, setting{what, "", true, func() error { return d.links.SetVF(now.pf, now.index, what, *f.VF) }})
	}
	return list
}
