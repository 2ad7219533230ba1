package plugin

import (
	"fmt"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
)

// takeOver handles a former ADD of this attachment that had no DEL:
//
//   - A live one without delegates stays until this ADD is recorded, which replaces it.
//   - One that was killed during its delegates, belongs to an earlier boot, or has lost its network namespace is
//     cleaned up.
//   - One whose delegates have made a pod's network is an error.
//
// takeOver returns the content that the former ADD wrote to the device-info file; nil if another program
// has replaced that, or the former ADD was not of this boot or namespace.
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
		r.log.Warn("cleaning up an attachment from an earlier boot", "since", former.Time)
		ended.Netns = "" // another pod's may be at its path
	case r.plugin.stale(r.key, former):
		r.log.Warn("cleaning up an attachment whose network namespace is gone", "since", former.Time)
		ended.Netns = ""
	case len(former.Delegates) == 0:
		written, _, err = r.written(former)
		return written, err
	case former.Complete:
		remedy := "run DEL first: adding it again would tear down the network that its delegates made"
		if len(r.delegates) == 0 || r.cfg.PrevResult != nil && former.PrevResult == nil {
			remedy = "devinfo appears twice in this chain: remove one of the two"
		}
		return nil, fail(codeConfig, fmt.Errorf("attachment %s exists, since %s", r.key, former.Time.Format("2006-01-02 15:04:05 MST")), remedy)
	default:
		r.log.Warn("cleaning up after an unfinished ADD", "since", former.Time)
		if written, _, err = r.written(former); err != nil {
			return nil, err
		}
	}
	c := cleanup{call: r.call, entry: &ended}
	c.removeInfo = func() error {
		_, external, err := r.written(&ended)
		if err == nil && !external { // else this ADD reads it
			err = c.removeFile()
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

// written returns the content of the device-info file if a former ADD wrote it. external is true if
// another program, such as a delegate or the runtime, wrote it, before that ADD or since.
func (r *request) written(former *journal.Entry) (info *devinfo.Info, external bool, err error) {
	if former.File == "" || former.File != r.fileName {
		return nil, false, nil
	}
	_, info, err = readInfo(r.log, store.Open(former.Dir), former.File)
	if info == nil || !former.Kept && sameInfo(former.Info, info) {
		return info, false, err
	}
	return nil, true, err
}
