package inventory

import (
	"context"
	"time"
)

// Times are those of [Watch].
type Times struct {
	Settle time.Duration // how long events are gathered: many VFs come one by one
	Poll   time.Duration // after which the host is read, whether or not there was an event
}

// DefaultTimes react to an event within a second, and to a change without one within a
// minute.
func DefaultTimes() Times { return Times{Settle: time.Second, Poll: time.Minute} }

// Watch calls rebuild at once, and then whenever the host may have changed, until ctx
// ends: t.Settle after an event, and t.Poll after it was called last. Events may end
// (the channel is closed): then polling goes on.
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
			if !settling { // further events do not put it off
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
