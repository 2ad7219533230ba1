package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/link"
)

type outcome string

const (
	passedOutcome        outcome = "passed"
	failedOutcome        outcome = "failed"
	notApplicableOutcome outcome = "not applicable"
)

type result struct {
	Function string  `json:"function"` // or several
	Check    string  `json:"check"`
	Outcome  outcome `json:"outcome"`
	Why      string  `json:"why,omitempty"`
	Facts    string  `json:"facts,omitempty"` // of the kernel, if the check failed
	Time     string  `json:"time,omitempty"`  // of the ADD or the reset
	Took     string  `json:"took,omitempty"`
}

// notApplicable is why a check does not apply to a function.
type notApplicable string

func (n notApplicable) Error() string { return string(n) }

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

// spoilt is a pod that sets what it can, and an administrator who sets the VF on its PF.
func spoilt(ctx context.Context, n *node, t *target, _ *time.Duration) error {
	pod, err := newPod("spoilt")
	if err != nil {
		return err
	}
	var set []string
	try := func(what string, err error) {
		if err == nil {
			set = append(set, what)
		}
	}
	if t.Parent != nil && t.Number != nil {
		if pf, err := netlink.LinkByName(t.Parent.IfName); err == nil {
			try("trust", netlink.LinkSetVfTrust(pf, *t.Number, true))
			try("spoofchk", netlink.LinkSetVfSpoofchk(pf, *t.Number, false))
			try("vlan", netlink.LinkSetVfVlan(pf, *t.Number, 7))
			try("rate", netlink.LinkSetVfRate(pf, *t.Number, 0, 100))
		}
	}
	l, err := netlink.LinkByName(t.IfName)
	if err != nil {
		return err
	}
	if err := moveTo(l, pod); err != nil {
		return err
	}
	err = link.Within(pod, func() error {
		try("name", netlink.LinkSetName(l, ifName))
		if len(l.Attrs().HardwareAddr) == 6 {
			try("MAC", netlink.LinkSetHardwareAddr(l, []byte(ownMAC(6))))
		}
		try("MTU", netlink.LinkSetMTU(l, l.Attrs().MTU-100))
		try("promisc", netlink.SetPromiscOn(l))
		try("allmulticast", netlink.LinkSetAllmulticastOn(l))
		try("alias", netlink.LinkSetAlias(l, "devinfo-try"))
		try("group", netlink.LinkSetGroup(l, 7))
		try("txqueuelen", netlink.LinkSetTxQLen(l, 3))
		try("arp", netlink.LinkSetARPOff(l))
		try("up", netlink.LinkSetUp(l))
		return nil
	})
	if err == nil && len(set) < 5 {
		err = fmt.Errorf("only %s could be set", strings.Join(set, ", "))
	}
	return err
}

func moveTo(l netlink.Link, pod string) error {
	ns, err := os.Open(pod)
	if err != nil {
		return err
	}
	defer ns.Close()
	return netlink.LinkSetNsFd(l, int(ns.Fd()))
}

// reset binds the driver again. The time in the report is that until the function is complete.
func reset(ctx context.Context, n *node, t *target, took *time.Duration) error {
	before, err := n.custody.Look(t.Ref)
	if err != nil {
		return err
	}
	before.Reset = restore.Always
	began, bound := time.Now(), false
	for deadline := began.Add(patience); ctx.Err() == nil && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var did []string
		did, err = n.custody.Restore(before)
		if slices.Contains(did, restore.Reset) {
			bound, before.Reset = true, restore.Never
		}
		if err == nil {
			break
		}
	}
	*took = time.Since(began)
	if err == nil && !bound {
		err = errors.New("its driver was not bound again")
	}
	return err
}

// vfio binds the function to vfio-pci, as for a virtual machine or DPDK.
func vfio(ctx context.Context, n *node, t *target, add *time.Duration) error {
	before, err := n.custody.Look(t.Ref)
	if err != nil {
		return err
	}
	if err := n.custody.MayBind(before, "vfio-pci"); err != nil {
		return notApplicable(err.Error())
	}
	if err := n.custody.Bind(before, "vfio-pci"); err != nil {
		return err
	}
	if now, _ := os.Readlink("/sys/bus/pci/devices/" + t.PCI + "/driver"); filepath.Base(now) != "vfio-pci" {
		return fmt.Errorf("its driver is %q after it was bound to vfio-pci", filepath.Base(now))
	}
	return alone(ctx, n, t, add)
}

// stepLimit is the time limit of a check, without restoring.
const stepLimit = 2 * time.Minute

// try runs all checks on all targets. Whatever happens, the functions are restored at the end, or the record remains.
func (n *node) try(ctx context.Context, targets []*target, only *regexp.Regexp, out io.Writer) (results []result, err error) {
	r, err := n.begin(targets)
	if err != nil {
		return nil, err
	}
	say := func(t result) {
		results = append(results, t)
		line := fmt.Sprintf("  %-50s  %s", t.Check, t.Outcome)
		if t.Why != "" {
			line += ": " + t.Why
		}
		fmt.Fprintln(out, line)
	}
	exchanges := only.MatchString(framesBefore)
	var frames map[string]bool
	if exchanges {
		frames = n.exchange(ctx, targets, framesBefore, say, nil)
	}
	broken := false
	for k, t := range targets {
		fmt.Fprintf(out, "%s  %s\n", t.PCI, t.describe())
		for _, c := range checks {
			if ctx.Err() == nil && !broken && only.MatchString(c.name) {
				say(n.one(ctx, c, t, r.Functions[k], &broken))
			}
		}
	}
	if exchanges && !broken {
		n.exchange(ctx, targets, "frames between two VFs, after", say, frames)
	}
	for k, t := range targets {
		if left := n.asBefore(r.Functions[k], true); left != nil {
			broken = true
			say(result{Function: t.PCI, Check: "as before, at the end", Outcome: failedOutcome, Why: strings.Join(left, "; "), Facts: facts(t)})
		}
	}
	if broken {
		fmt.Fprintf(out, "A function is not as before. Run devinfo-try --restore; the record is %s.\n", n.recordFile())
		return results, nil
	}
	return results, n.end()
}

// one runs a check, and brings the function back.
func (n *node) one(ctx context.Context, c check, t *target, f function, broken *bool) (r result) {
	began := time.Now()
	var add time.Duration
	r = result{Function: t.PCI, Check: c.name, Outcome: passedOutcome}
	if err := c.needs(t); err != nil {
		r.Outcome, r.Why = notApplicableOutcome, err.Error()
		return r
	}
	err := n.stillFree(ctx, t)
	if err == nil {
		err = n.limited(ctx, c, t, &add)
	}
	if none, is := errors.AsType[notApplicable](err); is {
		r.Outcome, r.Why, err = notApplicableOutcome, string(none), nil
	} else if c.moves && err == nil {
		err = n.cameBack(f)
	}
	if left := n.asBefore(f, true); left != nil {
		*broken = true
		err = errors.Join(err, fmt.Errorf("it is not as before: %s", strings.Join(left, "; ")))
	}
	if err != nil {
		r.Outcome, r.Why, r.Facts = failedOutcome, strings.ReplaceAll(err.Error(), "\n", "; "), facts(t)
	}
	if r.Took = time.Since(began).Round(time.Millisecond).String(); add > 0 {
		r.Time = add.Round(time.Millisecond).String()
	}
	return r
}

// limited runs a check until its time limit. A write to /sys may block in the kernel, so the check is then left behind.
func (n *node) limited(ctx context.Context, c check, t *target, add *time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.run(ctx, n, t, add) }()
	select {
	case err := <-done:
		return err
	case <-time.After(stepLimit + 10*time.Second):
		return fmt.Errorf("it has not ended after %s", stepLimit)
	}
}

// stillFree asks again whether somebody uses the function.
func (n *node) stillFree(ctx context.Context, t *target) error {
	all, err := n.look(ctx)
	if err != nil {
		return err
	}
	for _, now := range all {
		if now.PCI == t.PCI {
			if now.why != "" {
				return fmt.Errorf("somebody uses it now: %s", now.why)
			}
			return nil
		}
	}
	return errors.New("the node has lost it")
}

// cameBack waits until the function is as before without help, except that a moved interface is down, and that the kernel
// keeps its name from the pod if the pod's namespace was killed.
func (n *node) cameBack(f function) error {
	removePods()
	var different []string
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		now, err := n.state(f.Ref)
		want := f.State
		now.Up, want.Up = false, false
		if now.IfName == ifName {
			now.IfName = want.IfName
		}
		different = want.unlike(now)
		if err == nil && different == nil {
			break
		}
		if time.Now().After(deadline) {
			return errors.Join(err, fmt.Errorf("it did not come back as it was: %s", strings.Join(different, "; ")))
		}
	}
	now, err := n.custody.Look(f.Ref)
	if errors.Is(err, restore.ErrNotOnNode) { // it has its name from the pod
		return nil
	}
	if err == nil && f.Before.VF != nil && now.VF != nil {
		if left := f.Before.VF.Unlike(*now.VF); left != nil {
			err = fmt.Errorf("it did not come back as it was: %s", strings.Join(left, ", "))
		}
	}
	return err
}

// facts are what the kernel says about a function, for a failed check.
func facts(t *target) string {
	dir := "/sys/bus/pci/devices/" + t.PCI
	names, _ := os.ReadDir(dir)
	var list []string
	for _, name := range names {
		list = append(list, name.Name())
	}
	driver, _ := os.Readlink(dir + "/driver")
	return fmt.Sprintf("driver %s; /sys has %s", filepath.Base(driver), strings.Join(list, " "))
}
