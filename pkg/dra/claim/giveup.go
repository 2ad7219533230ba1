package claim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/devices/restore"
)

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
