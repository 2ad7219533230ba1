package claim

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
	NoticeFailed    = "NetworkNotAttached"       // an ADD failed
	NoticeLate      = "NetworkTooLate"           // ADDs took longer than the runtime waits
	NoticeAbandoned = "NetworkAbandoned"         // a DEL was given up
	NoticeDevice    = "NetworkDeviceNotRestored" // a device is not what it was before the pod had it
)

// quiet is for how long the same notice is not repeated.
const quiet = 5 * time.Minute

// notices sends notices that were not sent recently.
type notices struct {
	notify func(Notice)
	mu     sync.Mutex
	told   map[Notice]time.Time // by notices without Text
}

// tell sends a notice, unless the pod's author has recently got one with that reason.
func (n *notices) tell(pod state.Pod, reason, text string) {
	if n.isNews(Notice{Pod: pod, Reason: reason}) {
		n.notify(Notice{pod, reason, text})
	}
}

// isNews reports whether a notice, without Text, was not sent recently.
func (n *notices) isNews(notice Notice) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for old, when := range n.told {
		if now.Sub(when) >= quiet {
			delete(n.told, old)
		}
	}
	if _, recently := n.told[notice]; recently {
		return false
	}
	n.told[notice] = now
	return true
}
