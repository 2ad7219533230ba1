package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
)

// takeOver handles a former ADD of this attachment that had no DEL:
//
//   - If it is live and has no delegates, it stays until this ADD is recorded, which replaces it.
//   - If it was killed while its delegates ran, belongs to an earlier boot, has lost its network namespace, or has
//     a corrupt entry, it is cleaned up.
//   - If its delegates have created a pod's network, takeOver fails.
//
// takeOver returns the content that the former ADD wrote to the device-info file. It returns nil if another
// program has replaced the content. It also returns nil after a cleanup, except after that of a killed ADD.
func (a *Addition) takeOver() (*devinfo.Info, error) {
	former, corrupt, err := a.LockAnyway(a.Key)
	if err != nil || former == nil {
		return nil, err
	}
	a.former = former
	ended, unfinished := a.Removal(former), false
	switch {
	case corrupt: // only the leases show what to clean up
	case !former.OfBoot(a.BootID):
		a.Log.Warn("cleaning up an attachment from an earlier boot", "since", former.Time)
		ended.Netns = "" // its path may now lead to another pod's namespace
	case a.Stale(former):
		a.Log.Warn("cleaning up an attachment whose network namespace is gone", "since", former.Time)
		ended.Netns = ""
	case len(former.Delegates) == 0:
		written, _, err := a.formerContent()
		return written, err
	case former.Complete:
		remedy := "run DEL first: adding it again would tear down the network that its delegates made"
		if len(a.Config.Delegates) == 0 || a.Config.PrevResult != nil && former.PrevResult == nil {
			remedy = "devinfo appears twice in this chain: remove one of the two"
		}
		return nil, failure.New(failure.Config, fmt.Errorf("attachment %s exists, since %s", a.Key, former.Time.Format("2006-01-02 15:04:05 MST")), remedy)
	default:
		a.Log.Warn("cleaning up after an unfinished ADD", "since", former.Time)
		unfinished = true
	}
	written, external, err := a.formerContent()
	if external {
		ended.File = "" // this ADD reads a file of another program
	}
	if err == nil {
		err = ended.Run()
	}
	if err != nil {
		return nil, fmt.Errorf("clean up after an earlier ADD: %w", err)
	}
	former.Unlock()
	a.former = nil
	if !unfinished {
		return nil, nil
	}
	return written, nil
}

// formerContent returns the content of the device-info file if a former ADD wrote it. external is true if another
// program, such as a delegate or the runtime, wrote the content before that ADD or since.
func (a *Addition) formerContent() (info *devinfo.Info, external bool, err error) {
	if a.former.File == "" || a.former.File != a.File.Name {
		return nil, false, nil
	}
	_, info, err = a.ReadInfo(store.Open(a.former.Dir), a.former.File)
	if info == nil || !a.former.Kept && SameInfo(a.former.Info, info) {
		return info, false, err
	}
	return nil, true, err
}

// NewEntry returns the journal entry, with everything that ADD may create. info is the content for the device-info
// file; nil = none.
func (a *Addition) NewEntry(info *devinfo.Info) *journal.Entry {
	t := a.Target(a.Declared, nil, a.Result)
	e := &journal.Entry{
		Key: a.Key, Netns: a.Args.Netns, Time: time.Now().UTC(), Pod: a.Attachment.Pod().String(),
		Requested: journal.Requested{
			DeviceIDs: t.DeviceIDs, PCIID: t.PCIID, SocketPath: t.SocketPath, FollowLower: t.FollowLower, SubfunctionParent: t.SubfunctionParent,
		},
		File: a.File.Name, Dir: a.Node.DeviceInfoDir, CDI: a.spec, CNIVersion: a.Config.CNIVersion, Args: a.Args.CNIArgs,
	}
	if link.NetnsNamesProcess(a.Args.Netns) {
		e.Inode = link.NetnsInode(a.Args.Netns)
	}
	if a.Declared != nil {
		e.Requested.Declared = a.Declared.Encode()
	}
	if info != nil && e.File != "" {
		e.Wrote, e.Info, e.Kept = true, info.Encode(), SameInfo(a.File.Original, info)
	}
	return e
}

// commit records the plan, takes leases of the devices, and writes the files.
func (a *Addition) commit(plan plan) error {
	e := a.NewEntry(plan.info)
	if last := a.Entry; last != nil { // this ADD has run plugins
		e.Delegates, e.CapabilityArgs, e.PrevResult, e.Result = last.Delegates, last.CapabilityArgs, last.PrevResult, a.Output
		e.Leases = slices.Clone(last.Leases)
	}
	e.Leases = journal.MergeLeases(e.Leases, plan.leases...)
	e.Complete, e.InNetns = true, plan.device.InNetns
	if plan.device.ReachedFromInterface {
		e.Interface = plan.device.Interface
	}
	if plan.info == nil {
		e.Reason = a.reason
	} else {
		e.Device = journal.Identity{Type: string(plan.info.Type), ID: discovery.Identity(plan.info)}
	}
	if e.SocketDir = plan.granted.SocketDir; plan.spec == nil {
		e.CDI, e.SocketDir = journal.CDI{}, ""
	}
	if e.File == "" && a.Entry == nil && plan.spec == nil && len(e.Leases) == 0 {
		if a.former == nil {
			return nil
		}
		return a.Removal(a.former).Run()
	}
	if err := a.Record(e); err != nil {
		return err
	}
	if err := a.WriteInfo(plan.info); err != nil || plan.spec == nil {
		return err
	}
	return setContent(a.Specs, e.CDI.File, plan.spec) // avoids a write, because runtimes reread all specs when one changes
}

// Do runs the steps of an ADD. If one fails, Do undoes all of them. A repeated ADD returns to the former attachment,
// unless delegates have run, because their DEL may remove its interface. In all other cases the attachment is cleaned
// up. If cleanup fails too, the entry stays, and DEL, GC or the next ADD finish the work.
func (a *Addition) Do(steps ...func() error) (err error) {
	defer func() { a.former.Unlock(); a.Entry.Unlock() }()
	for n := 0; n < len(steps) && err == nil; n++ {
		err = steps[n]()
	}
	if err != nil && a.Entry == nil && a.restoreFiles != nil { // the former entry is still recorded
		return failure.Join(err, a.restoreFiles())
	}
	if err == nil || a.Entry == nil {
		return err
	}
	var failed error
	restore := func() error { return setContent(a.Infos, a.File.Name, a.original) }
	if a.replaced != nil && len(a.Ran) == 0 {
		if failed = a.Record(a.replaced); failed == nil {
			restore = nil // the file belongs to the former attachment again
			failed = a.restoreFiles()
		}
		if failed == nil {
			return err
		}
	}
	r := a.Removal(a.Entry)
	r.Delegates, r.Result, r.RestoreFile = a.Ran, a.Output, restore
	return failure.Join(err, failed, r.Run())
}

// sriovPause and sriovTries limit the wait for sriov-cni's lock. In a chain, sriov-cni's DEL runs after devinfo's.
const (
	sriovPause = 50 * time.Millisecond
	sriovTries = 20
)

// Record writes the entry to the journal and takes its leases. It replaces the former entry, or the entry
// that this ADD recorded before. In that case it first checks that no lease will be refused, and then removes the
// files that only the replaced entry has. While sriov-cni has a lock of a device, it tries again.
func (a *Addition) Record(e *journal.Entry) (err error) {
	last := cmp.Or(a.former, a.Entry)
	for range sriovTries {
		if err = a.removeReplaced(last, e); err == nil {
			err = a.Journal.Put(e, last)
		}
		if held, ok := errors.AsType[*journal.HeldError](err); !ok || held.Holder.Entry != nil || held.Holder.Claim != nil {
			break
		}
		time.Sleep(sriovPause)
	}
	switch {
	case err == nil:
		a.replaced, a.former, a.Entry = cmp.Or(a.former, a.replaced), nil, e
	case errors.As(err, new(*journal.HeldError)):
		return a.heldError(err)
	case failure.Code(err) == failure.IO:
		return failure.New(failure.IO, err, "check the journal's directory "+a.Node.StateDir+" (node setting stateDir)")
	}
	return err
}

// removeReplaced removes the files of the last entry, if there is one, that the new entry does not have.
func (a *Addition) removeReplaced(last, e *journal.Entry) error {
	if last == nil {
		return nil
	}
	if err := a.Journal.Free(e); err != nil {
		return err
	}
	if a.restoreFiles == nil {
		a.restoreFiles = saveFiles(last)
	}
	var err error
	r := a.Removal(last)
	if last.CDI != e.CDI {
		err = r.RemoveSpec()
	}
	if last.Path() != e.Path() {
		err = failure.Join(err, r.RemoveFile())
	}
	return err
}

// saveFiles reads the files of the entry, and returns a function that writes the same content again.
func saveFiles(e *journal.Entry) (restore func() error) {
	var restores []func() error
	for _, path := range []string{e.Path(), filepath.Join(e.CDI.Dir, e.CDI.File)} {
		dir, name := store.Open(filepath.Dir(path)), filepath.Base(path)
		if text, err := dir.Read(name); err == nil || errors.Is(err, fs.ErrNotExist) {
			restores = append(restores, func() error { return setContent(dir, name, text) })
		}
	}
	return func() (err error) {
		for _, restore := range restores {
			err = failure.Join(err, restore())
		}
		return err
	}
}
