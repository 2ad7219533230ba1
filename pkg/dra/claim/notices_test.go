package claim

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/test/difftest"
)

// A pod's claims have workers of their own, which may fail at the same time.
func TestSameNoticeIsSentOnceInFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		n := &notices{notify: func(Notice) { sent.Add(1) }, sentAt: map[Notice]time.Time{}}
		const pods = 1000
		for range 10 { // one a minute
			var workers sync.WaitGroup
			for i := range pods {
				begin := make(chan struct{})
				for range 4 {
					workers.Go(func() { <-begin; n.send(state.Pod{UID: strconv.Itoa(i)}, NoticeFailed, "") })
				}
				close(begin)
			}
			workers.Wait()
			time.Sleep(time.Minute)
		}
		difftest.Same(t, "notices in 10 minutes", int(sent.Load()), 2*pods)
	})
}
