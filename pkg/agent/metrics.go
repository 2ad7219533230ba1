package agent

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/core/build"
)

// metrics are updated when an event happens. [Agent.facts] computes the remaining metrics for each scrape.
// A scrape does not read the node's state.
type metrics struct {
	installs, sweeps, collected        *prometheus.CounterVec
	decisions, withheld, disagreements *prometheus.CounterVec // of containers
	durations                          prometheus.Histogram
	waits                              prometheus.Counter
	staged                             prometheus.Gauge
}

// counterVec returns a counter with one label. It creates the series of all values with 0, because
// Prometheus cannot see the first increase of a series that starts at 1.
func counterVec[T ~string](name, help, label string, values ...T) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		v.WithLabelValues(string(value))
	}
	return v
}

func newMetrics() metrics {
	m := metrics{
		installs:  counterVec("devinfo_plugin_installs_total", "Installations of the plugin, by result.", "result", "installed", "replaced"),
		sweeps:    counterVec("devinfo_gc_runs_total", "Cleanups of state left by dead sandboxes and previous boots, by result.", "result", "ok", "failed"),
		collected: counterVec("devinfo_gc_removed_total", "Attachments and files that cleanups removed, by kind.", "kind", "attachment", "file"),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "devinfo_injections_total", Help: "Containers that the runtime was about to create, by result and reason.",
		}, []string{"result", "reason"}),
		withheld: counterVec("devinfo_injection_withheld_total", "Device nodes and mounts withheld from containers, by reason.",
			"reason", inject.ByPolicy, inject.ByUserNamespace, inject.ByMount, inject.ByPropagation),
		disagreements: counterVec("devinfo_injection_disagreements_total", "Containers whose PCIDEVICE_* variables disagree with the pod's networks, by kind of disagreement.",
			"kind", inject.OtherDevice, inject.OtherOrder),
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "devinfo_injection_duration_seconds", Help: "Time that the runtime waited for the agent's decision about a container.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .02, .05, .1, .25, .5, 1, 2},
		}),
		waits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "devinfo_injection_wait_seconds_total", Help: "Time that requests of the container runtime waited for a slow node, and all pods of the node with them.",
		}),
		staged: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "devinfo_injection_sandboxes", Help: "Pod sandboxes that have a directory with device information.",
		}),
	}
	for _, decision := range []inject.Decision{inject.Nothing, inject.Off, inject.Injected} {
		m.decisions.WithLabelValues(string(decision), "")
	}
	for _, decision := range []inject.Decision{inject.Allowed, inject.Rejected} {
		for _, reason := range []inject.Reason{inject.FileGone, inject.Required, inject.Failed, inject.Late} {
			m.decisions.WithLabelValues(string(decision), string(reason))
		}
	}
	return m
}

// Decided and the following methods implement [inject.Metrics].
func (m metrics) Decided(decision inject.Decision, reason inject.Reason, took time.Duration) {
	m.decisions.WithLabelValues(string(decision), string(reason)).Inc()
	m.durations.Observe(took.Seconds())
}

func (m metrics) Withheld(by inject.Withheld)      { m.withheld.WithLabelValues(string(by)).Inc() }
func (m metrics) Disagrees(by inject.Disagreement) { m.disagreements.WithLabelValues(string(by)).Inc() }
func (m metrics) Waited(took time.Duration)        { m.waits.Add(took.Seconds()) }
func (m metrics) Staged(sandboxes int)             { m.staged.Set(float64(sandboxes)) }

// facts sends the metrics of components, plugin and attachments. It is called for each scrape and omits
// unknown values. No scrape sees a partly updated set of series.
func (a *Agent) facts(to chan<- prometheus.Metric, of build.Info) {
	gauge := func(name, help string, of ...string) (show func(value float64, labels ...string)) {
		desc := prometheus.NewDesc(name, help, of, nil)
		return func(value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
		}
	}
	gauge("devinfo_agent_info", "Version of the agent; always 1.", "version", "revision")(1, of.Version, of.Revision)
	ok := gauge("devinfo_agent_component_healthy", "1 if the component of the agent is healthy, as in /healthz, else 0.", "component")
	for _, c := range a.Checks() {
		ok(map[bool]float64{true: 1}[c.Ask() == nil], c.Name)
	}
	gauge("devinfo_gc_pending_attachments", "Stale attachments whose delegates the agent cannot run; the runtime, or devinfoctl gc, must remove them.")(float64(a.left.Load()))
	if p := a.plugin.Load(); p != nil && p.IsDevinfo {
		gauge("devinfo_plugin_info", "Version of the plugin on the node; always 1.", "version", "journal_format")(1, p.Version, strconv.Itoa(p.JournalFormat))
	}
	c := a.summary.Load()
	if c == nil {
		return
	}
	states := gauge("devinfo_attachments", "Attachments on the node, by state.", "state")
	for _, state := range classes {
		states(float64(c.states[state]), state)
	}
	info := gauge("devinfo_attachment_info", "An attachment on the node and its device; always 1.", seriesLabels...)
	for _, s := range c.series {
		info(1, s[:]...)
	}
	gauge("devinfo_attachments_omitted", "Attachments that devinfo_attachment_info omits.")(float64(c.unnamed))
	gauge("devinfo_last_check_timestamp_seconds", "Unix time of the last check of the attachments.")(float64(c.at.UnixMicro()) / 1e6)
}

// unchecked is a collector that does not describe its metrics in advance, because the set changes. A
// [prometheus.CollectorFunc] would describe only the metrics that exist at the registration.
type unchecked func(chan<- prometheus.Metric)

func (unchecked) Describe(chan<- *prometheus.Desc)      {}
func (u unchecked) Collect(to chan<- prometheus.Metric) { u(to) }

// Register registers the agent's metrics. docs/agent.md lists them.
func (a *Agent) Register(to prometheus.Registerer, of build.Info) {
	m := a.metrics
	facts := unchecked(func(to chan<- prometheus.Metric) { a.facts(to, of) })
	to.MustRegister(facts, m.installs, m.sweeps, m.collected)
	if a.Injection != nil {
		to.MustRegister(m.decisions, m.withheld, m.disagreements, m.durations, m.waits, m.staged)
	}
}
