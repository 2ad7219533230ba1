package claim

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"devinfo-cni.io/pkg/core/state"
)

// Census counts attachments by phase, claims whose status is not yet written to the API server, and unreadable records.
type Census struct {
	Phases        map[string]int
	PendingStatus int
	Unreadable    int
}

// metrics are the metrics of an engine. docs/dra/reference.md lists them.
type metrics struct {
	execs         *prometheus.HistogramVec
	execFailures  *prometheus.CounterVec
	events        *prometheus.HistogramVec
	eventFailures *prometheus.CounterVec
	connected     prometheus.Gauge
	waits         prometheus.Histogram
}

// newMetrics registers the metrics. It calls census at each scrape.
func newMetrics(to prometheus.Registerer, census func() Census) *metrics {
	in := promauto.With(to)
	histogram := func(name, help string) prometheus.HistogramOpts {
		// A macvlan takes 10 ms, and DHCP takes seconds. The runtime stops waiting after 2 s.
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 15, 60}}
	}
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	m := &metrics{
		execs:         in.NewHistogramVec(histogram("devinfo_dra_exec_duration_seconds", "Duration of ADD and DEL of a CNI network, successful or not, by verb."), []string{"verb"}),
		execFailures:  in.NewCounterVec(counter("devinfo_dra_exec_failures_total", "Failures of ADD and DEL of a CNI network, by verb and reason."), []string{"verb", "reason"}),
		events:        in.NewHistogramVec(histogram("devinfo_dra_request_duration_seconds", "Duration of requests from the container runtime and the kubelet, by request."), []string{"request"}),
		eventFailures: in.NewCounterVec(counter("devinfo_dra_request_failures_total", "Requests from the container runtime and the kubelet that failed, by request."), []string{"request"}),
		connected:     in.NewGauge(prometheus.GaugeOpts{Name: "devinfo_dra_nri_connected", Help: "1 while the container runtime is connected through NRI, else 0."}),
		waits:         in.NewHistogram(histogram("devinfo_dra_sandbox_wait_seconds", "Time that sandboxes waited until they were attached.")),
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
		m.execFailures.WithLabelValues(verb, string(reasonOf(err))).Inc()
	}
}

// event counts one call by the runtime or the kubelet. Use it as defer e.metrics.event("Name", time.Now(), &err).
func (m *metrics) event(name string, began time.Time, err *error) {
	m.events.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if *err != nil {
		m.eventFailures.WithLabelValues(name).Inc()
	}
}
