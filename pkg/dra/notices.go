package dra

import (
	"sync"
	"time"

	"devinfo-cni.io/pkg/dra/state"
)

// Notice is what the author of a pod is told of it, as an Event.
type Notice struct {
	Pod    state.Pod
	Reason string // one of the Notice constants
	Text   string
}

// The reasons of notices.
const (
	NoticeFailed    = "NetworkNotAttached"      // an ADD failed, or took too long
	NoticeRefused   = "NetworkContainerRefused" // a container was not let in
	NoticeAbandoned = "NetworkAbandoned"        // a DEL was given up
)

// quiet is for how long nobody is told the same again.
const quiet = 5 * time.Minute

// notices remembers what was told lately.
type notices struct {
	mu   sync.Mutex
	told map[Notice]time.Time // without Text
}

// isNews says whether a pod's author has not been told of that cause lately.
func (n *notices) isNews(notice Notice) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for old, when := range n.told {
		if now.Sub(when) >= quiet {
			delete(n.told, old)
		}
	}
	notice.Text = ""
	if _, lately := n.told[notice]; lately {
		return false
	}
	if n.told == nil {
		n.told = map[Notice]time.Time{}
	}
	n.told[notice] = now
	return true
}

func (a *Agent) notify(pod state.Pod, reason, text string) {
	notice := Notice{pod, reason, text}
	if a.Notify != nil && a.notices.isNews(notice) {
		a.Notify(notice)
	}
}
