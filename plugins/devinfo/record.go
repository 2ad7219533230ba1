package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/result"
)

// newEntry returns the journal entry of the attachment before ADD has done anything. It names
// everything that ADD may make. res is the result that the delegates have to start from, or have made.
func (r *request) newEntry(res *result.Result) *journal.Entry {
	t := r.target(r.declared, nil, res)
	e := &journal.Entry{
		Key: r.key, Netns: r.args.Netns, Time: r.plugin.Now().UTC(), Pod: r.att.Pod().String(),
		Asked: journal.Asked{
			DeviceIDs: t.DeviceIDs, PCIID: t.PCIID, SocketPath: t.SocketPath, FollowLower: t.FollowLower, SubfunctionParent: t.SubfunctionParent,
		},
		File: r.fileName, Dir: r.plugin.Node.DeviceInfoDir,
		CDI: r.cdi.file, Delegates: r.delegates, CNIVersion: r.cfg.CNIVersion, Args: r.args.Args,
	}
	if r.declared != nil {
		e.Asked.Declared = r.declared.Encode()
	}
	if len(r.delegates) > 0 {
		e.CapabilityArgs, e.PrevResult = r.capabilityArgs(), r.cfg.PrevResult
	}
	return e
}

// commit records what ADD is about to make, takes leases of the devices, and then writes the files.
func (r *request) commit(rollback *rollback, file infoFile, res *result.Result, plan plan) error {
	e := r.newEntry(res)
	if last := rollback.entry; last != nil {
		e.Leases, e.Result = slices.Clone(last.Leases), last.Result
	}
	e.Leases = mergeLeases(e.Leases, plan.leases...)
	e.Complete, e.InNetns = true, plan.device.InNetns
	if plan.device.Led {
		e.Interface = plan.device.Interface
	}
	if plan.info != nil {
		e.Device = journal.Identity{Type: string(plan.info.Type), ID: discovery.Identity(plan.info)}
		if e.Wrote = file.name != ""; e.Wrote {
			e.Info, e.Kept = plan.info.Encode(), file.keeps(plan.info)
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
	return setContent(r.plugin.Specs, e.CDI.File, plan.spec) // container runtimes read all specs again when one changes
}

// takeOver handles a former ADD of this attachment that had no DEL. A live one without delegates stays
// until this ADD is recorded, which replaces it. One that was killed during its delegates, is of an
// earlier boot or has lost its network namespace is cleaned up. One whose delegates have made a pod's network is refused.
// takeOver returns what the former ADD wrote to the device-info file; nil if that is gone or counts no more.
func (r *request) takeOver(rollback *rollback) (written *devinfo.Info, err error) {
	former, corrupt, err := r.lock()
	if err != nil || former == nil {
		return nil, err
	}
	rollback.former = former
	ended := *former
	switch {
	case corrupt: // lock has warned; the leases alone show what there is to clean up
	case !former.OfBoot(r.plugin.BootID):
		r.log.Warn("cleaning up after an attachment of an older boot", "since", former.Time)
		ended.Netns = "" // another pod's may be at its path
	case r.plugin.dead(r.key, former):
		r.log.Warn("cleaning up after an attachment whose network namespace is gone", "since", former.Time)
		ended.Netns = ""
	case len(former.Delegates) == 0:
		written, _, err = r.written(former)
		return written, err
	case former.Complete:
		remedy := "DEL first: to add it again would tear down what its delegates made"
		if len(r.delegates) == 0 || r.cfg.PrevResult != nil && former.PrevResult == nil {
			remedy = "devinfo stands twice in this chain: name it once"
		}
		return nil, fail(codeConfig, fmt.Errorf("attachment %s exists, since %s", r.key, former.Time.Format("2006-01-02 15:04:05 MST")), remedy)
	default:
		r.log.Warn("cleaning up after an ADD that was cut short", "since", former.Time)
		if written, _, err = r.written(former); err != nil {
			return nil, err
		}
	}
	c := cleanup{call: r.call, entry: &ended}
	c.removeInfo = func() error {
		if _, external, err := r.written(&ended); err != nil || external { // this ADD reads it
			return err
		}
		return c.removeFile()
	}
	if err := c.run(); err != nil {
		return nil, fmt.Errorf("clean up after an earlier ADD: %w", err)
	}
	former.Unlock()
	rollback.former = nil
	return written, nil
}

// written returns what the device-info file says if a former ADD wrote it. external is true if
// another program, such as a delegate or the runtime, wrote it, before that ADD or since.
func (r *request) written(former *journal.Entry) (info *devinfo.Info, external bool, err error) {
	if former.File == "" || former.File != r.fileName {
		return nil, false, nil
	}
	_, info, err = readInfo(r.log, store.Open(former.Dir), former.File)
	if info == nil || !former.Kept && says(former.Info, info) {
		return info, false, err
	}
	return nil, true, err
}

// rollback is what a failed ADD goes back to.
type rollback struct {
	call *call
	file infoFile // as ADD found it

	former       *journal.Entry // of the ADD that this one repeats, locked until it is replaced; nil = none
	replaced     *journal.Entry // the former entry, once it is replaced
	restoreFiles func() error   // restores the files of the former entry

	// entry is this ADD's, as it recorded it last, locked; nil = it has recorded none. In memory it has only
	// the delegates that need a DEL, with the result for that.
	entry *journal.Entry
}

// end undoes an ADD that failed with err, and unlocks its entries. A live attachment becomes what it was
// before the ADD, unless delegates have run, because their DEL may have removed its interface. Otherwise
// the attachment ends. If that fails too, the entry stays, so that DEL, GC and the next ADD know what is
// left to do.
func (b *rollback) end(err error) error {
	defer func() { b.former.Unlock(); b.entry.Unlock() }()
	if err == nil || b.entry == nil {
		return err
	}
	var failed error
	if b.replaced != nil && len(b.entry.Delegates) == 0 {
		if failed = b.reinstate(); failed == nil {
			return err
		}
	}
	return followedBy(err, failed, cleanup{call: b.call, entry: b.entry, removeInfo: b.file.restore}.run())
}

// reinstate records the former entry again and restores its files.
func (b *rollback) reinstate() error {
	restoreFiles := b.restoreFiles
	b.former = b.entry
	if err := b.record(b.replaced); err != nil {
		return err
	}
	return restoreFiles()
}

// sriovPause and sriovTries limit the wait for sriov-cni's lock. In a chain sriov-cni's DEL runs after
// devinfo's, which has given back the lease.
const (
	sriovPause = 50 * time.Millisecond
	sriovTries = 20
)

// record writes the entry to the journal and takes its leases. It replaces the entry that this ADD
// recorded before, or that of the ADD which it repeats. Files that only the repeated ADD made are
// removed first, once nothing can be refused any more.
func (b *rollback) record(e *journal.Entry) (err error) {
	j, former := b.call.plugin.Journal, cleanup{call: b.call, entry: b.former}
	if b.former != nil {
		b.restoreFiles = former.saveFiles()
	}
	for range sriovTries {
		err = nil
		if b.former != nil {
			if err = j.Free(e); err == nil {
				err = former.removeReplaced(e)
			}
		}
		if err == nil {
			err = j.Record(e, cmp.Or(b.former, b.entry))
		}
		if held, ok := errors.AsType[*journal.HeldError](err); !ok || held.Holder.Entry != nil || held.Holder.Claim != nil {
			break
		}
		time.Sleep(sriovPause)
	}
	switch {
	case err == nil:
		b.replaced, b.former, b.entry = cmp.Or(b.former, b.replaced), nil, e
		return nil
	case as[*journal.HeldError](err):
		err = b.call.held(err)
	case codeOf(err) == codeIO:
		err = fail(codeIO, err, "the journal is in the node setting stateDir, "+b.call.plugin.Node.StateDir)
	}
	if b.former != nil {
		err = followedBy(err, b.restoreFiles())
	}
	return err
}
