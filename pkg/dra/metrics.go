package dra

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/inventory"
)

// Census is how many attachments there are in each phase, and how many claims have a
// status that the API server has not taken yet.
type Census struct {
	Phases map[string]int
	Status int
}

// NewMetrics registers what an agent counts. The names are in docs/dra/README.md.
func NewMetrics(to prometheus.Registerer) Metrics {
	// A macvlan takes 10 ms, DHCP seconds; the runtime gives up after 2 s.
	buckets := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 15, 60}
	execs := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "cni_dra_exec_duration_seconds", Help: "Runs of a CNI network, successful or not, by verb.", Buckets: buckets,
	}, []string{"verb"})
	execFailures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cni_dra_exec_failures_total", Help: "Failed runs of a CNI network, by verb and reason.",
	}, []string{"verb", "reason"})
	events := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "cni_dra_event_duration_seconds", Help: "Calls by the container runtime and the kubelet, by event.", Buckets: buckets,
	}, []string{"event"})
	eventFailures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cni_dra_event_failures_total", Help: "Calls by the container runtime and the kubelet that were answered with an error, by event.",
	}, []string{"event"})
	connected := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cni_dra_nri_connected", Help: "1 while the container runtime is connected by NRI.",
	})
	to.MustRegister(execs, execFailures, events, eventFailures, connected)
	m := waitMetrics(to, buckets)
	m.Exec = func(verb string, took time.Duration, reason string) {
		execs.WithLabelValues(verb).Observe(took.Seconds())
		if reason != "" {
			execFailures.WithLabelValues(verb, reason).Inc()
		}
	}
	m.Event = func(event string, took time.Duration, err error) {
		events.WithLabelValues(event).Observe(took.Seconds())
		if err != nil {
			eventFailures.WithLabelValues(event).Inc()
		}
	}
	m.Mismatch = mismatchMetric(to)
	m.Connected = func(on bool) {
		connected.Set(0)
		if on {
			connected.Set(1)
		}
	}
	return m
}

// waitMetrics are those of what pods wait for.
func waitMetrics(to prometheus.Registerer, buckets []float64) Metrics {
	waits := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "cni_dra_add_wait_seconds", Help: "How long sandboxes were held up until they were attached.", Buckets: buckets,
	})
	cut := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cni_dra_attachments_not_offered", Help: "Attachments that --max-attachments allows and the API server cannot express.",
	})
	known := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cni_dra_others_known", Help: "1 while it is known what device plugins and others have of the node's devices.",
	})
	idle := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cni_dra_idle_rules", Help: "1 for each rule of the configuration that names no device of this node, with the device that comes nearest.",
	}, []string{"rule", "nearest"})
	to.MustRegister(waits, cut, known, idle)
	known.Set(1)
	return Metrics{
		Idle: func(list []inventory.Idle) {
			idle.Reset()
			for _, i := range list {
				idle.WithLabelValues(i.Rule, i.Nearest).Set(1)
			}
		},
		Known: func(is bool) {
			known.Set(0)
			if is {
				known.Set(1)
			}
		},
		Waited: func(took time.Duration) { waits.Observe(took.Seconds()) },
		Cut:    func(n int) { cut.Set(float64(n)) },
	}
}

// mismatchMetric counts what DEL has not restored of devices.
func mismatchMetric(to prometheus.Registerer) func(what string, restored bool) {
	mismatches := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cni_dra_device_mismatches_total", Help: "What of devices was not as before the ADD after the DEL, by whether the agent has restored it.",
	}, []string{"what", "restored"})
	to.MustRegister(mismatches)
	return func(what string, restored bool) { mismatches.WithLabelValues(what, strconv.FormatBool(restored)).Inc() }
}

var (
	attachmentsDesc = prometheus.NewDesc("cni_dra_attachments", "Attachments of prepared claims, by phase.", []string{"phase"}, nil)
	abandonedDesc   = prometheus.NewDesc("cni_dra_abandoned", "Attachments whose DEL was given up.", nil, nil)
	statusDesc      = prometheus.NewDesc("cni_dra_status_queue", "Claims whose status the API server has not taken yet.", nil, nil)
)

// CensusMetrics asks for the census at each scrape.
type CensusMetrics func() Census

// Describe implements prometheus.Collector.
func (CensusMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- attachmentsDesc
	to <- abandonedDesc
	to <- statusDesc
}

// Collect implements prometheus.Collector.
func (take CensusMetrics) Collect(to chan<- prometheus.Metric) {
	census := take()
	for phase, count := range census.Phases {
		to <- prometheus.MustNewConstMetric(attachmentsDesc, prometheus.GaugeValue, float64(count), phase)
	}
	to <- prometheus.MustNewConstMetric(abandonedDesc, prometheus.GaugeValue, float64(census.Phases[string(state.Abandoned)]))
	to <- prometheus.MustNewConstMetric(statusDesc, prometheus.GaugeValue, float64(census.Status))
}
