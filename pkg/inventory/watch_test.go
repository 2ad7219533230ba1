package inventory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/inventory"
)

func TestEventsAreGatheredAndAPollStandsBehindThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		events := make(chan struct{})
		start := time.Now()
		var at []time.Duration
		go inventory.Watch(ctx, events, inventory.DefaultTimes(), func(context.Context) { at = append(at, time.Since(start)) })
		for _, pause := range []time.Duration{10 * time.Second, 300 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second} {
			time.Sleep(pause)
			events <- struct{}{}
		}
		close(events) // 15.6 s after the start
		time.Sleep(2 * time.Minute)
		stop()
		synctest.Wait()
		want := []time.Duration{0, 11 * time.Second, 16600 * time.Millisecond, 76600 * time.Millisecond}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Error(diff)
		}
	})
}
