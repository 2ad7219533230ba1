package dra

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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

// PostNotices makes an Event of each notice, without waiting for the API server. One that
// it does not take is logged: the claim's status says the same.
func PostNotices(client kubernetes.Interface, driver, node string, log *slog.Logger) func(Notice) {
	const patience, longest = 30 * time.Second, 1024 // of an Event's note, in bytes
	return func(n Notice) {
		event := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: n.Pod.Namespace, GenerateName: n.Pod.Name + "-"},
			EventTime:  metav1.NowMicro(), ReportingController: driver, ReportingInstance: node,
			Type: corev1.EventTypeWarning, Reason: n.Reason, Action: "AttachNetworks", Note: shortened(n.Text, longest),
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: n.Pod.Namespace, Name: n.Pod.Name, UID: n.Pod.UID},
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if _, err := client.EventsV1().Events(n.Pod.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
				log.Warn("event of a pod", "error", fmt.Errorf("pod %s/%s: %w", n.Pod.Namespace, n.Pod.Name, err))
			}
		}()
	}
}

// shortened is the beginning of a text, of whole characters.
func shortened(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const rest = "..."
	return strings.ToValidUTF8(text[:limit-len(rest)], "") + rest
}

func (a *Agent) tell(pod state.Pod, reason, text string) {
	notice := Notice{pod, reason, text}
	if a.Notify != nil && a.notices.isNews(notice) {
		a.Notify(notice)
	}
}
