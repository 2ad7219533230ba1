package claim

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/dra/status"
)

// reports writes the status of claims to the API server, at most four at a time.
type reports struct {
	options Options
	table   *table
	queue   workqueue.TypedRateLimitingInterface[string] // claims whose status may have to be written
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
		err := r.options.Status(limited, status.Report{Driver: r.options.Driver, Namespace: c.ref.Namespace, Name: c.ref.Name, UID: c.ref.UID, Devices: devices})
		retry := status.Retry(err)
		if err != nil {
			r.options.Log.Warn("cannot write the status of a claim", "claim", c.ref, "retry", retry, "error", err)
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

// devices returns the status of all devices of a claim that have one, with the condition that the Device Configuration API
// defines.
func (r *reports) devices(c *claim) []resourceapi.AllocatedDeviceStatus {
	list := []resourceapi.AllocatedDeviceStatus{}
	for _, at := range c.record.Attachments {
		s := resourceapi.AllocatedDeviceStatus{Driver: r.options.Driver, Pool: at.Pool, Device: at.Device, ShareID: at.ShareID}
		ready := metav1.Condition{Type: "Ready", LastTransitionTime: metav1.NewTime(at.Ready.Since)}
		var result json.RawMessage
		switch {
		case at.Phase == state.Added && at.Metadata != nil:
			ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, "NetworkInterfaceReady", "CNI-DRA-Driver has configured the device."
			result, s.NetworkData, s.Conditions = at.Result, devices.MetadataOf(&at).NetworkData, []metav1.Condition{ready}
		case at.Ready.Status == string(metav1.ConditionFalse):
			ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "NetworkInterfaceNotReady", metadata.Message(at.Error)
			s.Conditions = []metav1.Condition{ready}
		case !at.Bare():
			continue
		}
		s.Data, _ = metadata.Data(result, devices.Shown(&at)) // network.Runner has logged the warnings
		list = append(list, s)
	}
	return list
}

// Notice is a problem of a pod, reported to its author as an Event.
type Notice struct {
	Pod    state.Pod
	Reason string // one of the Notice constants
	Text   string
}

const (
	NoticeFailed    = "NetworkNotAttached"       // an ADD failed
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
	defer n.mu.Unlock()
	maps.DeleteFunc(n.sentAt, func(_ Notice, when time.Time) bool { return now.Sub(when) >= 5*time.Minute })
	if _, recently := n.sentAt[notice]; !recently {
		n.sentAt[notice] = now
		notice.Text = text
		n.notify(notice)
	}
}

// Census counts attachments by phase, and claims whose status is not yet written to the API server.
type Census struct {
	Phases        map[string]int
	PendingStatus int
}

// metrics are the metrics of an engine. docs/dra/reference.md lists them.
type metrics struct {
	execs         *prometheus.HistogramVec
	execFailures  *prometheus.CounterVec
	events        *prometheus.HistogramVec
	eventFailures *prometheus.CounterVec
	connected     prometheus.Gauge
	waits         prometheus.Histogram
	held          prometheus.Counter
}

// newMetrics registers the metrics. It calls census at each scrape.
func newMetrics(to prometheus.Registerer, census func() Census) *metrics {
	in := promauto.With(to)
	histogram := func(name, help string) prometheus.HistogramOpts {
		// A macvlan takes 10 ms, and DHCP takes seconds.
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: []float64{.005, .01, .02, .05, .1, .25, .5, 1, 2, 5, 15, 60}}
	}
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	m := &metrics{
		execs:         in.NewHistogramVec(histogram("devinfo_dra_exec_duration_seconds", "Duration of ADD and DEL of a CNI network, successful or not, by verb."), []string{"verb"}),
		execFailures:  in.NewCounterVec(counter("devinfo_dra_exec_failures_total", "Failures of ADD and DEL of a CNI network, by verb and reason."), []string{"verb", "reason"}),
		events:        in.NewHistogramVec(histogram("devinfo_dra_request_duration_seconds", "Duration of requests from the container runtime and the kubelet, by request."), []string{"request"}),
		eventFailures: in.NewCounterVec(counter("devinfo_dra_request_failures_total", "Requests from the container runtime and the kubelet that failed, by request."), []string{"request"}),
		connected:     in.NewGauge(prometheus.GaugeOpts{Name: "devinfo_dra_nri_connected", Help: "1 while the container runtime is connected through NRI, else 0."}),
		waits:         in.NewHistogram(histogram("devinfo_dra_sandbox_wait_seconds", "Time from the start of sandboxes until they had the networks that all their containers need.")),
		held:          in.NewCounter(counter("devinfo_dra_nri_wait_seconds_total", "Time that requests of the container runtime waited for the driver, and all pods of the node with them.")),
	}
	gauge := func(name, help string, labels prometheus.Labels, count func(Census) int) {
		in.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(count(census())) })
	}
	for _, phase := range state.Phases() {
		labels := prometheus.Labels{"phase": string(phase)}
		gauge("devinfo_dra_attachments", "Attachments of prepared claims, by phase.", labels, func(c Census) int { return c.Phases[string(phase)] })
	}
	gauge("devinfo_dra_undeleted_attachments", "Attachments whose DEL was given up.", nil, func(c Census) int { return c.Phases[string(state.Undeleted)] })
	gauge("devinfo_dra_pending_status_updates", "Claims whose status is not yet written to the API server.", nil, func(c Census) int { return c.PendingStatus })
	return m
}

// exec counts one ADD or DEL of a CNI network.
func (m *metrics) exec(verb string, took time.Duration, err error) {
	m.execs.WithLabelValues(verb).Observe(took.Seconds())
	if err != nil {
		m.execFailures.WithLabelValues(verb, string(network.ReasonOf(err))).Inc()
	}
}

// event counts one call by the runtime or the kubelet. Use it as defer e.metrics.event("Name", time.Now(), &err).
func (m *metrics) event(name string, began time.Time, err *error) {
	m.events.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if *err != nil {
		m.eventFailures.WithLabelValues(name).Inc()
	}
}
