package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A check tries one thing on one function, whose state it may change. After it, the function is restored; moves reports
// whether the check itself must have brought it back, so that a difference is a failure of the check.
type check struct {
	name  string
	needs func(t *target) error // a notApplicable, or nil
	run   func(ctx context.Context, n *node, t *target, add *time.Duration) error
	moves bool
}

const (
	hostDevice = `{"type": "host-device", "capabilities": {"deviceID": true}}`
	devinfo    = `{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}}`
	blind      = `{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true}}`
	delegating = `{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}, "delegates": [{"type": "host-device"}]}`
)

var checks = []check{
	{"found by deviceID, without its interface", needsFunction, alone, true},
	{"found by deviceID, after host-device", needsInterface, attached(hostDevice+", "+devinfo, true), true},
	{"found by its interface, after host-device", needsInterface, byInterface, true},
	{"found by deviceID, with host-device as delegate", needsInterface, attached(delegating, true), true},
	{"namespace of the pod killed before DEL", needsInterface, killed, true},
	{"found below a macvlan", needsInterface, macvlan, true},
	{"vDPA devices found by name and by address", needsVDPA, vdpa, true},
	{"restored after a pod that set everything", needsInterface, spoilt, false},
	{"its driver bound again, as by reset: always", needsReset, reset, false},
	{"bound to vfio-pci, found there, and bound back", needsVF, vfio, false},
}

func needsFunction(t *target) error {
	if len(t.vdpa) > 0 {
		return notApplicable("the function carries the vDPA device " + strings.Join(t.vdpa, ", "))
	}
	return nil
}

func needsVDPA(t *target) error {
	if len(t.vdpa) == 0 {
		return notApplicable("it has no vDPA device")
	}
	return nil
}

func needsReset(t *target) error {
	if err := needsFunction(t); err != nil || t.Parent != nil {
		return err
	}
	return notApplicable("a whole function stays on its driver")
}

func needsVF(t *target) error {
	if err := needsReset(t); err != nil || !strings.Contains(t.Driver, "vfio") {
		return err
	}
	return notApplicable("it is on " + t.Driver + ", see the first check")
}

func needsInterface(t *target) error {
	if err := needsFunction(t); err != nil || t.IfName != "" {
		return err
	}
	return notApplicable("it has no interface")
}

// alone attaches the function without moving it. A runtime may repeat ADD and DEL.
func alone(ctx context.Context, n *node, t *target, add *time.Duration) error {
	w, err := n.network(devinfo)
	if err != nil {
		return err
	}
	a, err := w.attachment("alone", t.PCI)
	if err != nil {
		return err
	}
	return lives(ctx, a, t, "", true, add)
}

// lives runs ADD, CHECK and DEL, and compares the file; again repeats ADD and DEL.
func lives(ctx context.Context, a *attachment, t *target, vdpa string, again bool, add *time.Duration) error {
	want, err := expected(t, vdpa)
	if err != nil {
		return err
	}
	for range map[bool]int{false: 1, true: 2}[again] {
		if err := a.add(ctx); err != nil {
			return err
		}
		*add = max(*add, a.took)
		info, err := a.info()
		if err == nil {
			err = differ("the device-info file", info, want)
		}
		if err == nil {
			err = a.check(ctx)
		}
		if err != nil {
			return errors.Join(err, a.del(ctx))
		}
	}
	err = a.del(ctx)
	if again && err == nil {
		err = a.del(ctx)
	}
	return err
}

// attached moves the interface into a pod.
func attached(plugins string, named bool) func(context.Context, *node, *target, *time.Duration) error {
	return func(ctx context.Context, n *node, t *target, add *time.Duration) error {
		a, err := n.pod(plugins, "moved", t, named)
		if err != nil {
			return err
		}
		before, err := n.state(t.Ref)
		if err != nil {
			return err
		}
		if err := lives(ctx, a, t, "", false, add); err != nil {
			return err
		}
		if len(a.result.Interfaces) != 1 {
			return fmt.Errorf("the result has %d interfaces, not one", len(a.result.Interfaces))
		}
		i := a.result.Interfaces[0]
		return errors.Join(differ("name in the result", i.Name, ifName), differ("MAC in the result", i.Mac, before.MAC),
			differ("sandbox in the result", i.Sandbox, a.rt.NetNS), differ("pciID in the result", i.PciID, t.PCI))
	}
}

func (n *node) pod(plugins, name string, t *target, named bool) (*attachment, error) {
	w, err := n.network(plugins)
	if err != nil {
		return nil, err
	}
	id := ""
	if named {
		id = t.PCI
	}
	return w.attachment(name, id)
}

func byInterface(ctx context.Context, n *node, t *target, add *time.Duration) error {
	return attached(fmt.Sprintf(`{"type": "host-device", "device": %q}, %s`, t.IfName, blind), false)(ctx, n, t, add)
}

// killed removes the pod's namespace, as a runtime does that was killed. The kernel returns the interface, and DEL without
// the namespace must leave nothing.
func killed(ctx context.Context, n *node, t *target, add *time.Duration) error {
	a, err := n.pod(hostDevice+", "+devinfo, "killed", t, true)
	if err != nil {
		return err
	}
	if err := a.add(ctx); err != nil {
		return err
	}
	*add = a.took
	removePods()
	a.rt.NetNS = ""
	return a.del(ctx)
}

func macvlan(ctx context.Context, n *node, t *target, add *time.Duration) error {
	if i, err := n.links.Interface("", t.IfName); err != nil {
		return err
	} else if len(i.MAC) != 6 {
		return notApplicable("it is not Ethernet")
	}
	a, err := n.pod(fmt.Sprintf(`{"type": "macvlan", "master": %q}, %s`, t.IfName, blind), "macvlan", t, false)
	if err != nil {
		return err
	}
	return lives(ctx, a, t, "", false, add)
}

func vdpa(ctx context.Context, n *node, t *target, add *time.Duration) error {
	w, err := n.network(devinfo)
	if err != nil {
		return err
	}
	for _, name := range t.vdpa {
		for k, id := range []string{name, t.PCI} {
			if id == t.PCI && len(t.vdpa) > 1 {
				continue // which one it is, nobody can tell
			}
			a, err := w.attachment(fmt.Sprint(name, k), id)
			if err == nil {
				err = lives(ctx, a, t, name, true, add)
			}
			if err != nil {
				return fmt.Errorf("deviceID %s: %w", id, err)
			}
		}
	}
	return nil
}
