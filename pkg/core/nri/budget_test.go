package nri_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/core/nri"
	"devinfo-cni.io/test/difftest"
)

func TestHandlersShareOneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var total atomic.Int64 // handlers report at the same time
		b := nri.NewBudget(500*time.Millisecond, 0.05, 0, func(d time.Duration) { total.Add(int64(d)) })
		use := func(most time.Duration) (used time.Duration) {
			began := time.Now()
			ctx, end := b.Begin(t.Context())
			select {
			case <-ctx.Done():
			case <-time.After(most):
			}
			end()
			if ctx.Err() == nil {
				t.Error("the context lasts longer than the wait")
			}
			return time.Since(began)
		}
		difftest.Same(t, "what is not used stays", use(100*time.Millisecond), 100*time.Millisecond)
		began := time.Now()
		both := make(chan time.Duration, 2)
		for range 2 {
			go func() { both <- use(time.Hour) }()
		}
		if sum := <-both + <-both; sum < 400*time.Millisecond || sum > 410*time.Millisecond {
			t.Errorf("two handlers at once wait for %v", sum)
		}
		for time.Since(began) < 10*time.Second {
			use(time.Hour)
			time.Sleep(100 * time.Millisecond)
		}
		if waited := time.Duration(total.Load()); waited < 900*time.Millisecond || waited > 1010*time.Millisecond { // the last one ends after these 10 s
			t.Errorf("the handlers wait for %v in 10 s", waited)
		}
		time.Sleep(time.Hour)
		difftest.Same(t, "the budget has a limit", use(time.Hour), 500*time.Millisecond)

		b = nri.NewBudget(500*time.Millisecond, 0.05, 250*time.Millisecond, func(time.Duration) {})
		for n := range 100 {
			if used := use(time.Hour); used != 0 && used < 250*time.Millisecond {
				t.Errorf("wait %d of %v is too short for anybody", n, used)
			}
			time.Sleep(100 * time.Millisecond)
		}
		b = nri.NewBudget(500*time.Millisecond, 0.05, 500*time.Millisecond, func(time.Duration) {})
		difftest.Same(t, "the least is left", use(time.Hour), 500*time.Millisecond)
	})
}
