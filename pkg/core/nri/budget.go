package nri

import (
	"context"
	"sync"
	"time"
)

// Budget limits the time that all handlers of a plugin wait together. The runtime's NRI server has one mutex for all
// requests of the node, so every pod of the node waits with a handler.
type Budget struct {
	burst  time.Duration
	share  float64
	least  time.Duration
	waited func(time.Duration)

	mu   sync.Mutex
	left time.Duration
	at   time.Time // of the last addition to left
}

// NewBudget returns a budget of burst, which fills again by share of the passing time. With 0.5 s and 0.05, handlers wait
// for at most 1 s in any 10 s, and in the long run for 50 ms in each second. While less than least is left, nobody waits,
// so that the budget is not spent in pieces that are too short for anybody. waited is called with the time that a handler has
// waited.
func NewBudget(burst time.Duration, share float64, least time.Duration, waited func(time.Duration)) *Budget {
	return &Budget{burst: burst, share: share, least: least, waited: waited, left: burst, at: time.Now()}
}

// Begin returns a context for all that a handler waits for. It ends when the budget is used up. Call end when the
// handler waits no longer.
func (b *Budget) Begin(ctx context.Context) (_ context.Context, end func()) {
	began := time.Now()
	b.mu.Lock()
	b.left = min(b.burst, b.left+time.Duration(b.share*float64(began.Sub(b.at))))
	b.at = began
	grant := b.left
	if grant < b.least { // also if others have waited for longer than their grants
		grant = 0
	}
	b.left -= grant // another handler must not get it too
	b.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, began.Add(grant))
	return ctx, func() {
		cancel()
		now := time.Now()
		b.mu.Lock()
		b.left = min(b.burst, b.left+grant-now.Sub(began))
		b.mu.Unlock()
		b.waited(now.Sub(began))
	}
}
