package dra

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"devinfo-cni.io/pkg/cniexec"
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
	in := promauto.With(to)
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		// A macvlan takes 10 ms, DHCP seconds; the runtime gives up after 2 s.
		buckets := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 15, 60}
		return in.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return in.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return in.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	flag := func(g *prometheus.GaugeVec, is bool) {
		g.WithLabelValues().Set(map[bool]float64{true: 1}[is])
	}
	execs := histogram("cni_dra_exec_duration_seconds", "Runs of a CNI network, successful or not, by verb.", "verb")
	execFailures := counter("cni_dra_exec_failures_total", "Failed runs of a CNI network, by verb and reason.", "verb", "reason")
	events := histogram("cni_dra_event_duration_seconds", "Calls by the container runtime and the kubelet, by event.", "event")
	eventFailures := counter("cni_dra_event_failures_total", "Calls by the container runtime and the kubelet that were answered with an error, by event.", "event")
	connected := gauge("cni_dra_nri_connected", "1 while the container runtime is connected by NRI.")
	waits := histogram("cni_dra_add_wait_seconds", "How long sandboxes were held up until they were attached.")
	cut := gauge("cni_dra_attachments_not_offered", "Attachments that --max-attachments allows and the API server cannot express.")
	known := gauge("cni_dra_others_known", "1 while it is known what device plugins and others have of the node's devices.")
	idle := gauge("cni_dra_idle_rules", "1 for each rule of the configuration that names no device of this node, with the device that comes nearest.", "rule", "nearest")
	mismatches := counter("cni_dra_device_mismatches_total", "What of devices was not as before the ADD after the DEL, by whether the agent has restored it.", "what", "restored")
	flag(connected, false)
	flag(known, true)
	cut.WithLabelValues().Set(0)
	waits.WithLabelValues()
	return Metrics{
		Exec: func(verb string, took time.Duration, reason cniexec.Reason) {
			execs.WithLabelValues(verb).Observe(took.Seconds())
			if reason != "" {
				execFailures.WithLabelValues(verb, string(reason)).Inc()
			}
		},
		Event: func(event string, took time.Duration, err error) {
			events.WithLabelValues(event).Observe(took.Seconds())
			if err != nil {
				eventFailures.WithLabelValues(event).Inc()
			}
		},
		Connected: func(on bool) { flag(connected, on) },
		Waited:    func(took time.Duration) { waits.WithLabelValues().Observe(took.Seconds()) },
		Cut:       func(n int) { cut.WithLabelValues().Set(float64(n)) },
		Mismatch:  func(what string, restored bool) { mismatches.WithLabelValues(what, strconv.FormatBool(restored)).Inc() },
		Known:     func(is bool) { flag(known, is) },
		Idle: func(list []inventory.Idle) {
			idle.Reset()
			for _, i := range list {
				idle.WithLabelValues(i.Rule, i.Nearest).Set(1)
			}
		},
	}
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
