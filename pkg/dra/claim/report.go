package claim

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/dra/status"
)

// reports writes the status of claims to the API server, at most four at a time.
type reports struct {
	driver string
	write  func(context.Context, status.Report) error
	table  *table
	queue  workqueue.TypedRateLimitingInterface[string] // claims whose status may have to be written
	log    *slog.Logger
}

func newReports(driver string, write func(context.Context, status.Report) error, t *table, log *slog.Logger) *reports {
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, 5*time.Minute)
	return &reports{driver, write, t, workqueue.NewTypedRateLimitingQueue(limits), log}
}

// run writes the status of queued claims until ctx ends. Each claim has its own back-off.
func (r *reports) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for uid, shutdown := r.queue.Get(); !shutdown; uid, shutdown = r.queue.Get() {
				r.send(ctx, uid)
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	workers.Wait()
}

// send writes the status of a claim if that is pending, and wakes the claim's worker to record it.
func (r *reports) send(ctx context.Context, uid string) {
	defer r.queue.Done(uid)
	var c *claim
	var devices []resourceapi.AllocatedDeviceStatus
	r.table.do(func() {
		if c = r.table.claims[uid]; c != nil && c.record.StatusOwed {
			devices = r.devices(c)
		}
	})
	if devices == nil || ctx.Err() != nil {
		r.queue.Forget(uid)
		return
	}
	if len(devices) > 0 {
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		err := r.write(limited, status.Report{Driver: r.driver, Namespace: c.ref.Namespace, Name: c.ref.Name, UID: c.ref.UID, Devices: devices})
		retry := status.Retry(err)
		if err != nil {
			r.log.Warn("cannot write the status of a claim", "claim", c.ref, "retry", retry, "error", err)
		}
		if retry {
			r.queue.AddRateLimited(uid)
			return
		}
	}
	r.queue.Forget(uid)
	r.table.do(func() {
		c.sentStatus = devices
		r.table.wake(c)
	})
}

// devices returns the status of all devices of a claim that have one.
func (r *reports) devices(c *claim) []resourceapi.AllocatedDeviceStatus {
	list := []resourceapi.AllocatedDeviceStatus{}
	for _, at := range c.record.Attachments {
		d := metadata.Device{Driver: r.driver, Pool: at.Pool, Name: at.Device, ShareID: at.ShareID, Since: metav1.NewTime(at.Ready.Since), Shown: devices.Shown(&at)}
		switch {
		case at.Phase == state.Added && at.Metadata != nil:
			list = append(list, d.Attached(at.Result, devices.MetadataOf(&at).NetworkData)) // steps.metadata has logged the warnings
		case at.Ready.Status == string(metav1.ConditionFalse):
			list = append(list, d.Failed(at.Error))
		case at.Bare():
			list = append(list, d.Bare())
		}
	}
	return list
}

// Notice is a problem of a pod, reported to its author as an Event.
type Notice struct {
	Pod    state.Pod
	Reason string // one of the Notice constants
	Text   string
}

// Reasons of notices.
const (
	NoticeFailed    = "NetworkNotAttached"       // an ADD failed
	NoticeLate      = "NetworkAttachTimeout"     // the ADDs took longer than the runtime waits
	NoticeUndeleted = "NetworkNotDeleted"        // a DEL was given up
	NoticeDevice    = "NetworkDeviceNotRestored" // restoring a device was given up
	NoticeDiffers   = "NetworkDeviceDiffers"     // a device is offered again although settings differ from before the ADD
)

type notices struct {
	notify func(Notice)
	mu     sync.Mutex
	sentAt map[Notice]time.Time // keys have no Text
}

// send sends a notice, unless a notice for the same pod and reason was sent in the last five minutes.
func (n *notices) send(pod state.Pod, reason, text string) {
	notice, now := Notice{Pod: pod, Reason: reason}, time.Now()
	n.mu.Lock()
	maps.DeleteFunc(n.sentAt, func(_ Notice, when time.Time) bool { return now.Sub(when) >= 5*time.Minute })
	_, recently := n.sentAt[notice]
	if !recently {
		n.sentAt[notice] = now
	}
	n.mu.Unlock()
	if !recently {
		notice.Text = text
		n.notify(notice)
	}
}
