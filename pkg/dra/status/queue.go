package status

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

const (
	atOnce       = 4                      // reports that are under way
	firstPause   = 500 * time.Millisecond // after the first failure, doubled by each further one
	longestPause = 5 * time.Minute
	limit        = 30 * time.Second // for one call of Send, by its context
)

// Queue sends what is owed to the API server, and sends it again until it is there:
// one report per claim at a time, each claim with a back-off of its own, so that one
// that the server refuses holds up no other. Its methods may be called concurrently.
//
// It holds claims, not reports: when its turn comes, a claim's report is made from what
// holds then.
type Queue struct {
	// Send sends the report of a claim. Unless it returns nil it is called again,
	// after a while; so it returns nil for what is not worth it, see [Classify].
	Send func(context.Context, types.UID) error

	mu   sync.Mutex
	owed map[types.UID]uint64 // what is not sent yet, with the number of the Add that wants it
	adds uint64
	work workqueue.TypedRateLimitingInterface[types.UID] // nil = Run does not run
}

// Add wants the report of a claim to be sent, now, even if an earlier one waits for
// its back-off. It never blocks. Before and after [Queue.Run] it only takes note.
func (q *Queue) Add(claim types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.owed == nil {
		q.owed = map[types.UID]uint64{}
	}
	q.adds++
	q.owed[claim] = q.adds
	if q.work != nil {
		q.work.Add(claim)
	}
}

// Forget drops what is owed for a claim; a call of Send that is under way goes on.
func (q *Queue) Forget(claim types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.owed, claim)
	if q.work != nil {
		q.work.Forget(claim)
	}
}

// Run sends until ctx ends, and returns when the last call of Send has. What is owed
// then stays owed, for another Run. Only one Run at a time.
func (q *Queue) Run(ctx context.Context) {
	work := q.start()
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for q.next(ctx, work) {
			}
		})
	}
	<-ctx.Done()
	q.mu.Lock()
	q.work = nil
	q.mu.Unlock()
	work.ShutDown()
	workers.Wait()
}

// start makes the work queue here, not with the Queue, for it has goroutines.
func (q *Queue) start() workqueue.TypedRateLimitingInterface[types.UID] {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.work = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstPause, longestPause))
	for claim := range q.owed {
		q.work.Add(claim)
	}
	return q.work
}

func (q *Queue) next(ctx context.Context, work workqueue.TypedRateLimitingInterface[types.UID]) bool {
	claim, shutdown := work.Get()
	if shutdown {
		return false
	}
	defer work.Done(claim)
	add, owed := q.owes(claim)
	if !owed || ctx.Err() != nil {
		return true
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := q.Send(limited, claim)
	q.mu.Lock()
	defer q.mu.Unlock()
	switch now, owed := q.owed[claim]; {
	case !owed: // forgotten meanwhile
	case err != nil:
		work.AddRateLimited(claim)
	default:
		work.Forget(claim)
		if now == add { // else it was added again meanwhile, and is in the work queue
			delete(q.owed, claim)
		}
	}
	return true
}

func (q *Queue) owes(claim types.UID) (add uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	add, ok = q.owed[claim]
	return add, ok
}
