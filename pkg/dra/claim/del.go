package claim

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"time"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/link"
)

// delete detaches attachments, one after another, in the reverse order of ADD. It is safe to repeat, because DEL of a
// deleted network succeeds.
func (s *steps) delete(c *claim, indexes []int) {
	record := c.record.Clone()
	s.table.do(func() { maps.DeleteFunc(c.gatesOpen, func(n int, _ bool) bool { return slices.Contains(indexes, n) }) })
	for _, n := range indexes {
		record.Attachments[n].Phase = state.Deleting
	}
	s.putOrRetry(c, record, "deleting") // if this write fails, the older record on disk still leads to DEL
	place := func(n int) int {          // in the order of ADD, in which late networks are the last
		if record.Attachments[n].Late {
			return n + len(record.Attachments)
		}
		return n
	}
	for _, n := range slices.SortedFunc(slices.Values(indexes), func(n, m int) int { return place(m) - place(n) }) {
		at := &record.Attachments[n]
		var err error
		if c.mayStillRun[at.IfName] {
			err = s.networks.WaitForOrphans(record.UID, at)
			c.mayStillRun[at.IfName] = err != nil
		}
		if err == nil {
			err = s.gate.closeGate(record, at)
		}
		if err == nil {
			err = s.detach(record.UID, at)
		}
		s.recordDel(c, n, err)
	}
}

// detach runs DEL with the configuration of ADD, then removes the device-info file and the cache directory.
func (s *steps) detach(uid string, at *state.Attachment) error {
	netns, gone := at.Netns, ""
	if at.HasNetns(s.table.bootID) {
		s.holdNetns(at)
	}
	switch held := s.networks.Namespaces.Path(s.networks.HostRoot, at.Sandbox); {
	case at.BootID != s.table.bootID: // the path may belong to another namespace now, and the reboot has reset the devices
		netns = ""
	case held != "": // the runtime may remove the path at any time
		netns = held
	case errors.Is(s.table.netns(at.Netns), link.ErrNoNetns):
		netns, gone = "", at.Netns
	}
	began := time.Now()
	err := s.networks.Del(uid, at, netns, gone)
	s.metrics.exec("DEL", time.Since(began), err)
	return err
}

// holdNetns opens the network namespace of a sandbox for a later DEL, if it still exists. Normally ADD has done so.
func (s *steps) holdNetns(at *state.Attachment) {
	if err := s.networks.Namespaces.Hold(at.Sandbox, at.Netns); err != nil && !errors.Is(err, link.ErrNoNetns) && !errors.Is(err, fs.ErrNotExist) {
		s.options.Log.Warn("cannot hold a network namespace; DEL fails if the runtime removes it first", "sandbox", at.Sandbox, "error", err)
	}
}

// recordDel records the result of a DEL of attachment n.
func (s *steps) recordDel(c *claim, n int, err error) {
	record := c.record.Clone()
	at := &record.Attachments[n]
	if err == nil && at.Note == nil { // if there is a note, restore releases the leases
		err = s.releaseLeases(record, at)
	}
	switch {
	case err != nil:
	case at.Note != nil:
		at.Phase, at.Tries, at.DelError = state.Restoring, 0, ""
	default:
		at.Reset(at.Error)
	}
	s.backOff(c, n, at, err)
	s.putOrRetry(c, record, "deleted or not")
}

// backOff records a failed DEL or restore, and starts the back-off of the attachment. A device that is on its way back is no
// error at first. After a success it ends the back-off.
func (s *steps) backOff(c *claim, n int, at *state.Attachment, err error) {
	if err == nil {
		s.table.do(func() { delete(c.delBackOff, n) })
		return
	}
	at.Tries++
	what, limit := "DEL", s.options.DelMaxFailures
	if at.Phase == state.Restoring {
		what, limit = "restoring the device", restoreTries
	}
	// Each pause is twice as long as the one before, and all tries together take DelMinRetryTime.
	tries := max(1, min(at.Tries, limit-1))
	first := float64(s.options.DelMinRetryTime) / max(1, math.Exp2(float64(limit-1))-1)
	pause := time.Duration(first * math.Exp2(float64(tries-1)))
	if devices.IsOnItsWay(err) && at.Tries < slowTries {
		err = nil
	} else {
		at.DelError = err.Error()
		err = c.wrap(at, err)
		s.options.Log.Error(what+" failed; retrying", "pod", network.PodOf(at), "device", at.Device, "sandbox", at.Sandbox, "tries", at.Tries, "error", err)
		err = fmt.Errorf("%w; %s is retried in %v; after %d failures (%d so far) it is given up, if the network namespace no longer exists",
			err, what, pause.Round(time.Second), limit, at.Tries)
	}
	s.table.do(func() { c.delBackOff[n] = retry{err: err, after: time.Now().Add(pause)} })
}

const (
	restoreTries = 10 // failures after which a restore is given up; the first pauses are fractions of a second
	slowTries    = 4  // failures after which a missing device is logged; the kernel needs time to remove its namespace
)

// restore restores devices to their settings before ADD. It is called again for a device that has not returned.
func (s *steps) restore(c *claim, indexes []int) {
	record := c.record.Clone()
	for _, n := range indexes {
		at := &record.Attachments[n]
		different, err := s.node.Restore(record, at)
		if different != "" {
			s.notices.send(network.PodOf(at), NoticeDiffers, fmt.Sprintf("claim %s, request %s: %s", c.name(), at.Request, different))
		}
		if err == nil {
			err = s.releaseLeases(record, at)
		}
		s.options.Reached("restored")
		if err == nil {
			at.Reset(at.Error)
		}
		if s.backOff(c, n, at, err); at.Tries == restoreTries {
			s.node.CountMismatches(err)
		}
	}
	s.putOrRetry(c, record, "restored or not")
}

// giveUp moves attachments to the record's undeleted ones, so that the claim can end or be attached again.
// Their DELs are retried at each start and periodically.
func (s *steps) giveUp(c *claim, indexes []int) error {
	record := c.record.Clone()
	for _, n := range indexes {
		given := record.Attachments[n]
		given.Phase, given.GivenUp = state.Undeleted, time.Now().UTC().Truncate(time.Second)
		// A device that appears in place of a lost one is another device, and does not belong to this attachment.
		if errors.Is(s.node.Exists(&given), restore.ErrGone) {
			given.Lost, given.Note = true, nil
		}
		record.Undeleted = append(record.Undeleted, given)
		record.Attachments[n].Reset("")
	}
	former := c.record
	if err := s.put(c, record, "undeleted"); err != nil {
		return err
	}
	for _, n := range indexes {
		at := &former.Attachments[n]
		what, reason := "DEL of network "+at.Network, NoticeUndeleted
		if at.Phase == state.Restoring {
			what, reason = "restoring device "+at.Device, NoticeDevice
		}
		s.options.Log.Error("gave up detaching a pod; retrying periodically", "operation", what,
			"claim", c.ref, "network", at.Network, "device", at.Device, "sandbox", at.Sandbox, "ifName", at.IfName, "error", at.DelError)
		s.notices.send(network.PodOf(at), reason, fmt.Sprintf("claim %s, request %s: %s failed %d times and was given up: %s", c.name(), at.Request, what, at.Tries, at.DelError))
		s.table.do(func() { delete(c.delBackOff, n) })
	}
	s.table.do(func() {
		if now := time.Now(); !now.Before(c.retryUndeletedAt) {
			c.retryUndeletedAt = now.Add(s.options.UndeletedEvery)
		}
	})
	return nil
}

// deleteAgain retries the DELs of undeleted attachments one by one, because two may concern the same device.
func (s *steps) deleteAgain(c *claim, indexes []int) {
	record := c.record.Clone()
	for _, n := range slices.Backward(indexes) {
		at := record.Undeleted[n]
		err := s.node.Leases.CheckFree(record, &at)
		if err == nil {
			err = s.detach(record.UID, &at)
		}
		if err == nil {
			_, err = s.node.Restore(record, &at)
		}
		if err == nil {
			err = s.dropUndeleted(record, n)
		}
		if err != nil {
			at := &record.Undeleted[n]
			at.Tries, at.DelError = at.Tries+1, err.Error()
			s.options.Log.Error("retry of a DEL that was given up failed", "claim", c.ref, "sandbox", at.Sandbox, "tries", at.Tries, "error", err)
		}
	}
	s.table.do(func() { c.retryUndeletedAt = time.Now().Add(s.options.UndeletedEvery) })
	former := c.record
	s.putOrRetry(c, record, "deleted again")
	s.removeClearMarks(former, record)
}

// dropUndeleted removes an undeleted attachment from a record and ends its leases.
func (s *steps) dropUndeleted(record *state.Claim, n int) error {
	err := s.releaseLeases(record, &record.Undeleted[n])
	if err == nil {
		record.Undeleted = slices.Delete(record.Undeleted, n, n+1)
	}
	return err
}

// clear drops undeleted attachments without a DEL. An administrator requested it with "cni-dra-driver clear".
func (s *steps) clear(c *claim, indexes []int) error {
	record := c.record.Clone()
	for _, n := range slices.Backward(indexes) {
		at := record.Undeleted[n]
		s.options.Log.Warn("clearing an undeleted attachment, as the administrator requested", "claim", c.ref, "sandbox", at.Sandbox)
		if err := errors.Join(s.networks.Forget(c.uid(), &at), s.dropUndeleted(record, n)); err != nil {
			return fmt.Errorf("claim %s: clear an undeleted attachment: %w", c.ref, err)
		}
	}
	former := c.record
	if err := s.put(c, record, "cleared"); err != nil {
		return err
	}
	s.removeClearMarks(former, record)
	return nil
}

// removeClearMarks removes the administrator's marks of undeleted attachments that record no longer has.
func (s *steps) removeClearMarks(former, record *state.Claim) {
	for _, at := range former.Undeleted {
		if !slices.ContainsFunc(record.Undeleted, func(other state.Attachment) bool { return other.Sandbox == at.Sandbox && other.IfName == at.IfName }) {
			if err := s.files.Cleared(record.UID, &at); err != nil {
				s.options.Log.Warn("cannot remove the mark of a cleared attachment", "claim", record.Name, "error", err)
			}
		}
	}
}
