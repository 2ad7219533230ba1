package claim

import (
	"devinfo-cni.io/pkg/dra/devices"
)

const (
	// restoreTries is how often a device is restored before that is given up. They take as
	// long as the tries of DEL, and the first ones a fraction of a second.
	restoreTries = 10
	// slowTries is after how many of them it is said that a device is not back: until then
	// the kernel may be about to end its network namespace.
	slowTries = 4
)

// restore makes devices what they were before their sandboxes had them. It does not wait
// for one that is not back: it is called again.
func (s *steps) restore(c *claim, which []int) {
	record := c.record.Clone()
	for _, n := range which {
		at := &record.Attachments[n]
		err := s.Node.GiveBack(record, at)
		if err == nil {
			err = s.letGo(record, at)
		}
		s.Step("restored")
		if err == nil {
			at.Reset(at.Error)
			s.table.do(func() { delete(c.late, n) })
			continue
		}
		at.Tries++
		if at.Tries == restoreTries {
			s.Node.CountMismatches(err)
		}
		if devices.IsAway(err) && at.Tries < slowTries {
			s.pause(c, n, at, nil)
			continue
		}
		at.DelError = err.Error()
		s.Log.Warn("a device is not what it was before the pod had it", "pod", record.Pod, "device", at.Device, "tries", at.Tries, "error", err)
		s.pause(c, n, at, c.about(at, err))
	}
	s.records.putAnyway(c, record, "restored or not")
}
