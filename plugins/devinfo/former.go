package plugin

import (
	"fmt"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
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
