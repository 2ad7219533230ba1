package claim

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/state"
)

// A pod's claims have workers of their own, which may fail at the same time.
func TestNoticeOfSeveralWorkersIsSentOnce(t *testing.T) {
	var sent atomic.Int32
	n := &notices{notify: func(Notice) { sent.Add(1) }, sentAt: map[Notice]time.Time{}}
	const pods = 2000
	var ready sync.WaitGroup
	for i := range pods {
		pod := state.Pod{UID: string(rune(i))}
		begin := make(chan struct{})
		for range 4 {
			ready.Go(func() { <-begin; n.send(pod, NoticeFailed, "") })
		}
		close(begin)
	}
	ready.Wait()
	if sent.Load() != pods {
		t.Errorf("%d notices for %d pods", sent.Load(), pods)
	}
}
