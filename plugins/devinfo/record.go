package plugin

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/result"
)

// newEntry returns the journal entry of the attachment before ADD changes anything. It names everything that
// ADD may create. res is the CNI result so far.
func (r *request) newEntry(res *result.Result) *journal.Entry {
	t := r.target(r.declared, nil, res)
	e := &journal.Entry{
		Key: r.key, Netns: r.args.Netns, Time: time.Now().UTC(), Pod: r.att.Pod().String(),
		Requested: journal.Requested{
			DeviceIDs: t.DeviceIDs, PCIID: t.PCIID, SocketPath: t.SocketPath, FollowLower: t.FollowLower, SubfunctionParent: t.SubfunctionParent,
		},
		File: r.fileName, Dir: r.plugin.Node.DeviceInfoDir,
		CDI: r.cdi.file, Delegates: r.delegates, CNIVersion: r.cfg.CNIVersion, Args: r.args.CNIArgs,
	}
	if r.declared != nil {
		e.Requested.Declared = r.declared.Encode()
	}
	if len(r.delegates) > 0 {
		e.CapabilityArgs, e.PrevResult = r.capabilityArgs(), r.cfg.PrevResult
	}
	return e
}

// commit records the plan, takes leases of the devices, and writes the files.
func (r *request) commit(rollback *rollback, file infoFile, res *result.Result, plan plan) error {
	e := r.newEntry(res)
	if last := rollback.entry; last != nil {
		e.Leases, e.Result = slices.Clone(last.Leases), last.Result
	}
	e.Leases = mergeLeases(e.Leases, plan.leases...)
	e.Complete, e.InNetns = true, plan.device.InNetns
	if plan.device.ReachedFromInterface {
		e.Interface = plan.device.Interface
	}
	if plan.info == nil {
		e.Reason = r.reason
	} else {
		e.Device = journal.Identity{Type: string(plan.info.Type), ID: discovery.Identity(plan.info)}
		if e.Wrote = file.name != ""; e.Wrote {
			e.Info, e.Kept = plan.info.Encode(), sameInfo(file.original, plan.info)
		}
	}
	if e.SocketDir = plan.granted.SocketDir; plan.spec == nil {
		e.CDI, e.SocketDir = journal.CDI{}, ""
	}
	if file.name == "" && len(e.Delegates) == 0 && plan.spec == nil && len(e.Leases) == 0 {
		if rollback.former == nil {
			return nil
		}
		return cleanup{call: r.call, entry: rollback.former}.run()
	}
	if err := rollback.record(e); err != nil {
		return err
	}
	if err := file.write(plan.info); err != nil || plan.spec == nil {
		return err
	}
	return setContent(r.plugin.Specs, e.CDI.File, plan.spec) // avoids a write, because runtimes reread all specs when one changes
}

// rollback holds the state before an ADD, so that a failed ADD can restore it.
type rollback struct {
	call *call
	file infoFile // the device-info file at the beginning of ADD

	former       *journal.Entry // entry of an earlier ADD of this attachment, locked until it is replaced; nil = none
	replaced     *journal.Entry // the former entry, once it is replaced
	restoreFiles func() error   // restores the files of the former entry; nil = none was removed

	// entry is the entry that this ADD recorded last, locked; nil = none. In memory, it contains only the
	// delegates that need a DEL, and the result for that DEL.
	entry *journal.Entry
}

// end undoes an ADD that failed with err, and unlocks its entries. A repeated ADD returns to the former
// attachment, unless delegates have run, because their DEL may remove its interface. In all other cases the
// attachment is cleaned up. If cleanup fails too, the entry stays, and DEL, GC or the next ADD finish the work.
func (b *rollback) end(err error) error {
	defer func() { b.former.Unlock(); b.entry.Unlock() }()
	if err != nil && b.entry == nil && b.restoreFiles != nil { // the former entry is still recorded
		return followedBy(err, b.restoreFiles())
	}
	if err == nil || b.entry == nil {
		return err
	}
	var failed error
	c := cleanup{call: b.call, removeInfo: b.file.restore}
	if b.replaced != nil && len(b.entry.Delegates) == 0 {
		if failed = b.record(b.replaced); failed == nil {
			c.removeInfo = nil // the file belongs to the former attachment again
			failed = b.restoreFiles()
		}
		if failed == nil {
			return err
		}
	}
	c.entry = b.entry
	return followedBy(err, failed, c.run())
}

// sriovPause and sriovTries limit the wait for sriov-cni's lock. In a chain, sriov-cni's DEL runs after
// devinfo's and releases the lock later.
const (
	sriovPause = 50 * time.Millisecond
	sriovTries = 20
)

// record writes the entry to the journal and takes its leases. It replaces the former entry, or the entry
// that this ADD recorded before. In that case it first checks that no lease will be refused, and then removes the
// files that only the replaced entry has. While sriov-cni has a lock of a device, it tries again.
func (b *rollback) record(e *journal.Entry) (err error) {
	j, last := b.call.plugin.Journal, cleanup{call: b.call, entry: cmp.Or(b.former, b.entry)}
	for range sriovTries {
		err = nil
		if last.entry != nil {
			if err = j.Free(e); err == nil {
				if b.restoreFiles == nil {
					b.restoreFiles = last.saveFiles()
				}
				err = last.removeReplaced(e)
			}
		}
		if err == nil {
			err = j.Record(e, last.entry)
		}
		if held, ok := errors.AsType[*journal.HeldError](err); !ok || held.Holder.Entry != nil || held.Holder.Claim != nil {
			break
		}
		time.Sleep(sriovPause)
	}
	switch {
	case err == nil:
		b.replaced, b.former, b.entry = cmp.Or(b.former, b.replaced), nil, e
	case as[*journal.HeldError](err):
		return b.call.heldError(err)
	case codeOf(err) == codeIO:
		return fail(codeIO, err, "check the journal's directory "+b.call.plugin.Node.StateDir+" (node setting stateDir)")
	}
	return err
}
