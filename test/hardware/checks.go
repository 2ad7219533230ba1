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
	needs need
	run   func(ctx context.Context, n *node, t *target, add *time.Duration) error
	moves bool
}

// A need is what a function must be for a check.
type need int

const (
	aFunction       need = iota // without vDPA devices
	anInterface                 // such a function with an interface
	aDriver                     // such a function whose driver may change
	anotherThanVFIO             // and is not a VFIO driver
	aVDPA
)

const (
	hostDevice = `{"type": "host-device", "capabilities": {"deviceID": true}}`
	devinfo    = `{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}}`
	blind      = `{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true}}`
	delegating = `{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}, "delegates": [{"type": "host-device"}]}`
)

var checks = []check{
	{"found by deviceID, without its interface", aFunction, alone, true},
	{"found by deviceID, after host-device", anInterface, attached(hostDevice + ", " + devinfo), true},
	{"found by its interface, after host-device", anInterface, byInterface, true},
	{"found by deviceID, with host-device as delegate", anInterface, attached(delegating), true},
	{"namespace of the pod killed before DEL", anInterface, killed, true},
	{"found below a macvlan", anInterface, macvlan, true},
	{"vDPA devices found by name and by address", aVDPA, vdpa, true},
	{"restored after a pod that set everything", anInterface, spoilt, false},
	{"its driver bound again, as by reset: always", aDriver, reset, false},
	{"bound to vfio-pci, found there, and bound back", anotherThanVFIO, vfio, false},
}

// lacks returns why a check does not apply to the function; "" = it does.
func (t *target) lacks(what need) string {
	switch {
	case what == aVDPA && t.vdpa == nil:
		return "it has no vDPA device"
	case what == aVDPA:
		return ""
	case t.vdpa != nil:
		return "the function carries the vDPA device " + strings.Join(t.vdpa, ", ")
	case what == anInterface && t.IfName == "":
		return "it has no interface"
	case what >= aDriver && t.Parent == nil:
		return "a whole function stays on its driver"
	case what == anotherThanVFIO && strings.Contains(t.Driver, "vfio"):
		return "it is on " + t.Driver + ", see the first check"
	}
	return ""
}

// alone attaches the function without moving it. A runtime may repeat ADD and DEL.
func alone(ctx context.Context, n *node, t *target, add *time.Duration) error {
	a, err := n.attachment(devinfo, "alone", t.PCI)
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
func attached(plugins string) func(context.Context, *node, *target, *time.Duration) error {
	return func(ctx context.Context, n *node, t *target, add *time.Duration) error {
		a, err := n.attachment(plugins, "moved", t.PCI)
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

func byInterface(ctx context.Context, n *node, t *target, add *time.Duration) error {
	return attached(fmt.Sprintf(`{"type": "host-device", "device": %q}, %s`, t.IfName, blind))(ctx, n, t, add)
}

// killed removes the pod's namespace, as a runtime does that was killed. The kernel returns the interface, and DEL without
// the namespace must leave nothing.
func killed(ctx context.Context, n *node, t *target, add *time.Duration) error {
	a, err := n.attachment(hostDevice+", "+devinfo, "killed", t.PCI)
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
	a, err := n.attachment(fmt.Sprintf(`{"type": "macvlan", "master": %q}, %s`, t.IfName, blind), "macvlan", t.PCI)
	if err != nil {
		return err
	}
	return lives(ctx, a, t, "", false, add)
}

func vdpa(ctx context.Context, n *node, t *target, add *time.Duration) error {
	for _, name := range t.vdpa {
		for k, id := range []string{name, t.PCI} {
			if id == t.PCI && len(t.vdpa) > 1 {
				continue // which one it is, nobody can tell
			}
			a, err := n.attachment(devinfo, fmt.Sprint(name, k), id)
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
