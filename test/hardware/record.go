package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/store"
)

// record is what a run must undo. It is on disk before the run touches anything, and removed after all is as before.
type record struct {
	BootID    string
	Functions []function
	Trying    []string // PCI addresses of those that are not as before now; null = all may be
}

type function struct {
	Ref    hostdev.Ref
	Before restore.Snapshot
	State  state // for people, and to compare after a reboot
}

const recordName = "run.json"

func (n *node) recordFile() string { return n.dir + "/" + recordName }

// begin records the functions.
func (n *node) begin(targets []*target) error {
	n.run = &record{BootID: n.bootID}
	for _, t := range targets {
		before, err := n.custody.Look(t.Ref)
		if err != nil {
			return err
		}
		state, err := n.state(t.Ref)
		if err != nil {
			return err
		}
		n.run.Functions = append(n.run.Functions, function{t.Ref, before, state})
	}
	return n.note(nil)
}

// note writes the record. Only the functions with these addresses are not as before.
func (n *node) note(trying []string) error {
	n.run.Trying = append([]string{}, trying...)
	data, err := json.MarshalIndent(n.run, "", "  ")
	if err != nil {
		return err
	}
	return store.Durable(n.dir).Write(recordName, data)
}

// before returns what the record says of a function.
func (n *node) before(t *target) function {
	return n.run.Functions[slices.IndexFunc(n.run.Functions, func(f function) bool { return f.Ref.PCI == t.PCI })]
}

// undo restores what a killed run has left, and reports whether a function is different from before.
func (n *node) undo(ctx context.Context, out io.Writer) (different bool, err error) {
	r, err := n.readRecord()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "An earlier run has not ended. Restoring its functions.\n")
	again := false
	for _, f := range r.Functions {
		left, final := n.undone(ctx, f, r)
		for _, text := range left {
			fmt.Fprintf(out, "  %s: %s\n", f.Ref.PCI, text)
		}
		if left == nil {
			fmt.Fprintf(out, "  %s is as before\n", f.Ref.PCI)
		}
		different, again = different || left != nil, again || left != nil && !final
	}
	if again {
		return true, fmt.Errorf("not everything is as before; run devinfo-try --restore again, or restart the node; the record is %s", n.recordFile())
	}
	return different, n.end()
}

func unnumbered(names []string) (list []string) {
	for _, name := range names {
		list = append(list, strings.TrimRight(name, "0123456789"))
	}
	slices.Sort(list)
	return list
}

// undone restores a function that the run was trying. final reports that another attempt would not help. A boot has undone
// what the run did, so that nothing is changed after it.
func (n *node) undone(ctx context.Context, f function, r record) (different []string, final bool) {
	if r.BootID != n.bootID {
		now, err := n.state(f.Ref)
		if err != nil {
			return []string{err.Error()}, true
		}
		return f.State.unlikeAfterBoot(now), true
	}
	if r.Trying != nil && !slices.Contains(r.Trying, f.Ref.PCI) {
		return nil, true
	}
	if _, err := n.custody.Inode(f.Before); errors.Is(err, restore.ErrGone) {
		return []string{"there is nothing to restore: " + err.Error()}, true
	}
	return n.restored(ctx, f), false
}

func (n *node) readRecord() (r record, err error) {
	data, err := store.Durable(n.dir).Read(recordName)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s: %w", n.recordFile(), err)
	}
	return r, nil
}

// end forgets the run.
func (n *node) end() error {
	for _, name := range []string{"bin", "devinfo", "dp", "state", "cdi", "cni", "node.json"} {
		if err := os.RemoveAll(n.dir + "/" + name); err != nil {
			return err
		}
	}
	return store.Durable(n.dir).Remove(recordName)
}

// patience is the time in which a driver and the kernel must have brought a function back. A driver may refuse a MAC for some
// seconds, and the kernel moves interfaces back in the background. DEVINFO_TRY_PATIENCE replaces it.
var patience = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("DEVINFO_TRY_PATIENCE")); err == nil {
		return d
	}
	return time.Minute
}()

// asBefore restores a function, notes that, and returns how it differs from before.
func (n *node) asBefore(ctx context.Context, t *target) (different []string) {
	different = n.restored(ctx, n.before(t))
	if t.broken = different != nil; t.broken || t.hangs {
		return different
	}
	if err := n.note(slices.DeleteFunc(n.run.Trying, func(address string) bool { return address == t.PCI })); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// restored ends the program's namespaces, restores a function unless somebody has it, also after an interrupt, and returns
// how it differs from before.
func (n *node) restored(ctx context.Context, f function) (different []string) {
	removePods()
	free := false
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		if !free {
			now, err := n.find(context.WithoutCancel(ctx), f.Ref.PCI)
			if err == nil && now != nil && now.given != "" {
				return []string{"it is left as it is: " + now.given}
			}
			if free = err == nil; !free {
				different = []string{err.Error()}
			}
		}
		if free {
			different = n.restoreOnce(f)
		}
		if different == nil || time.Now().After(deadline) {
			return different
		}
	}
}

func (n *node) restoreOnce(f function) (different []string) {
	if _, err := n.custody.Restore(f.Before); err != nil {
		different = append(different, err.Error())
	} else if err := n.up(f.State); err != nil {
		different = append(different, err.Error())
	}
	now, err := n.state(f.Ref)
	if err != nil {
		return append(different, err.Error())
	}
	return append(different, f.State.unlike(now)...)
}

// up sets an interface up or down as it was. A move takes it down.
func (n *node) up(s state) error {
	if s.IfName == "" {
		return nil
	}
	l, err := netlink.LinkByName(s.IfName)
	switch {
	case err != nil:
		return err
	case s.Up:
		return netlink.LinkSetUp(l)
	}
	return netlink.LinkSetDown(l)
}
