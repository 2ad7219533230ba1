package cleanup

import (
	"time"

	"devinfo-cni.io/pkg/core/journal"
)

// LockWithin is Lock with other times.
func (c *Cleaner) LockWithin(key journal.Key, wait, limit time.Duration) (*journal.Entry, error) {
	return c.lock(key, wait, limit)
}
