package claim

import (
	"context"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cluster"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/dra/status"
)

const (
	reportsAtOnce = 4                      // under way
	firstReport   = 500 * time.Millisecond // the pause after a first failure, doubled by each further one
	longestReport = 5 * time.Minute
	reportLimit   = 30 * time.Second // for one call of Status, by its context
)

// reports sends the status of claims.
type reports struct {
	Options
	table *table
	queue workqueue.TypedRateLimitingInterface[types.UID] // claims whose status may be owed
}

func newReports(o Options, t *table) *reports {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstReport, longestReport)
	return &reports{o, t, workqueue.NewTypedRateLimitingQueue(limiter)}
}

// sendReports sends the status of the claims in the queue until ctx ends, each with a back-off
// of its own. What is owed then is on record.
func (r *reports) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range reportsAtOnce {
		workers.Go(func() {
			for {
				uid, shutdown := r.queue.Get()
				if shutdown {
					return
				}
				r.sendNext(ctx, uid)
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	workers.Wait()
}

func (r *reports) sendNext(ctx context.Context, uid types.UID) {
	defer r.queue.Done(uid)
	limited, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	switch {
	case ctx.Err() != nil:
	case r.send(limited, uid) != nil:
		r.queue.AddRateLimited(uid)
	default:
		r.queue.Forget(uid)
	}
}

// send sends the status of a claim as it is now, if it is owed, and has its worker note that.
// An error is worth another try.
func (r *reports) send(ctx context.Context, uid types.UID) error {
	r.table.mu.Lock()
	c := r.table.claims[uid]
	var devices []resourceapi.AllocatedDeviceStatus
	owed := c != nil && c.record.StatusOwed
	if owed {
		devices = r.devices(c)
	}
	r.table.mu.Unlock()
	if !owed {
		return nil
	}
	if len(devices) > 0 {
		err := r.Status(ctx, status.Report{Driver: r.Driver, Namespace: c.ref.Namespace, Name: c.ref.Name, UID: c.ref.UID, Devices: devices})
		retry := status.Retry(err)
		if err != nil {
			r.Log.Warn("status of a claim", "claim", c.ref, "retry", retry, "error", err)
		}
		if retry {
			return err
		}
	}
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	c.sent = append([]resourceapi.AllocatedDeviceStatus{}, devices...)
	r.table.wake(c)
	return nil
}

// devices are all devices of a claim of which there is something to say.
func (r *reports) devices(c *claim) []resourceapi.AllocatedDeviceStatus {
	list := []resourceapi.AllocatedDeviceStatus{}
	for n := range c.record.Attachments {
		at := &c.record.Attachments[n]
		d := metadata.Device{Driver: r.Driver, Pool: at.Pool, Name: at.Device, ShareID: at.ShareID, Since: at.Ready.Since, Shown: shown(at)}
		switch {
		case at.Phase == state.Added && at.Metadata != nil:
			list = append(list, d.Attached(at.Result, at.Metadata.NetworkData)) // describe has warned
		case at.Ready.Status == metav1.ConditionFalse:
			list = append(list, d.Failed(at.Error))
		case at.Bare():
			list = append(list, d.Bare())
		}
	}
	return list
}

// shown is what people are shown of the device of an attachment: what is known of it by now, and
// else what it is offered as.
func shown(at *state.Attachment) (d cluster.Device) {
	if info, err := devinfo.Parse(at.Info); err == nil {
		d = cluster.DeviceOf(info)
	}
	if at.Node != nil {
		d = d.Or(cluster.Published(&at.Node.Published))
	}
	return d
}
