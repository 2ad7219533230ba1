package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/result"
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
func (r *request) takeOver(rollback *rollback) (written *devinfo.Info, err error) {
	former, corrupt, err := r.lock()
	if err != nil || former == nil {
		return nil, err
	}
	rollback.former = former
	ended := *former
	switch {
	case corrupt: // lock has logged a warning; only the leases show what to clean up
	case !former.OfBoot(r.plugin.BootID):
		r.log.Warn("cleaning up an attachment from an earlier boot", "since", former.Time)
		ended.Netns = "" // its path may now lead to another pod's namespace
	case r.plugin.stale(r.key, former):
		r.log.Warn("cleaning up an attachment whose network namespace is gone", "since", former.Time)
		ended.Netns = ""
	case len(former.Delegates) == 0:
		written, _, err = r.formerContent(former)
		return written, err
	case former.Complete:
		remedy := "run DEL first: adding it again would tear down the network that its delegates made"
		if len(r.delegates) == 0 || r.cfg.PrevResult != nil && former.PrevResult == nil {
			remedy = "devinfo appears twice in this chain: remove one of the two"
		}
		return nil, fail(codeConfig, fmt.Errorf("attachment %s exists, since %s", r.key, former.Time.Format("2006-01-02 15:04:05 MST")), remedy)
	default:
		r.log.Warn("cleaning up after an unfinished ADD", "since", former.Time)
		if written, _, err = r.formerContent(former); err != nil {
			return nil, err
		}
	}
	c := cleanup{call: r.call, entry: &ended}
	remove := c.removeFile // a copy of c, without removeInfo
	c.removeInfo = func() error {
		_, external, err := r.formerContent(&ended)
		if err == nil && !external { // this ADD reads a file of another program
			err = remove()
		}
		return err
	}
	if err := c.run(); err != nil {
		return nil, fmt.Errorf("clean up after an earlier ADD: %w", err)
	}
	former.Unlock()
	rollback.former = nil
	return written, nil
}

// formerContent returns the content of the device-info file if a former ADD wrote it. external is true if another
// program, such as a delegate or the runtime, wrote the content before that ADD or since.
func (r *request) formerContent(former *journal.Entry) (info *devinfo.Info, external bool, err error) {
	if former.File == "" || former.File != r.fileName {
		return nil, false, nil
	}
	_, info, err = r.readInfo(store.Open(former.Dir), former.File)
	if info == nil || !former.Kept && sameInfo(former.Info, info) {
		return info, false, err
	}
	return nil, true, err
}

// newEntry returns the journal entry, with everything that ADD may create. res is the CNI result so far.
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

// sriovPause and sriovTries limit the wait for sriov-cni's lock. In a chain, sriov-cni's DEL runs after devinfo's.
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
