package inventory

import (
	"context"
	"time"
)

// Times are the intervals of [Watch].
type Times struct {
	Settle time.Duration // time for which events are collected, because VFs appear one by one
	Poll   time.Duration // interval between reads without events
}

func DefaultTimes() Times { return Times{Settle: time.Second, Poll: time.Minute} }

// Watch calls rebuild immediately, t.Settle after an event, and t.Poll after the last call, until ctx ends. It
// continues to poll after events is closed.
func Watch(ctx context.Context, events <-chan struct{}, t Times, rebuild func(context.Context)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	settling := false
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-events:
			if !open {
				events = nil
			}
			if !settling { // further events do not delay the call
				settling = true
				timer.Reset(t.Settle)
			}
		case <-timer.C:
			settling = false
			rebuild(ctx)
			timer.Reset(t.Poll)
		}
	}
}
