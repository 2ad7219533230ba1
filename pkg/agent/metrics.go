package agent

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/pkg/build"
)

// counters are what is counted when it happens; the rest is asked at each scrape.
type counters struct {
	installs, sweeps, collected *prometheus.CounterVec
	left                        prometheus.Gauge
	injection                   injectionCounters
}

// counterVec counts by a label from 0 on, so that the first one is seen as an increase.
func counterVec[T ~string](name, help, label string, values ...T) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		v.WithLabelValues(string(value))
	}
	return v
}

func newCounters() counters {
	return counters{
		installs:  counterVec("devinfo_plugin_installs_total", "How often the plugin was put in place, by result.", "result", "installed", "replaced"),
		sweeps:    counterVec("devinfo_sweeps_total", "Sweeps, by result.", "result", "ok", "failed"),
		collected: counterVec("devinfo_swept_total", "What sweeps have removed.", "what", "attachment", "file"),
		left: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "devinfo_sweep_left", Help: "Dead attachments whose delegates the agent cannot run: the runtime, or devinfoctl gc, has to remove them.",
		}),
		injection: newInjectionCounters(),
	}
}

// descriptions of what is asked at each scrape.
type descriptions struct{ ok, plugin, refused, states, series, unnamed, at *prometheus.Desc }

func describe() descriptions {
	desc := prometheus.NewDesc
	return descriptions{
		ok:      desc("devinfo_agent_ok", "1 where a part of the agent is well, as in /healthz.", []string{"part"}, nil),
		plugin:  desc("devinfo_plugin_info", "The plugin that is on the node, 1.", []string{"version", "journal_format"}, nil),
		refused: desc("devinfo_refused_adds_total", "ADDs that the plugin has refused because another pod, or a claim, has the device.", nil, nil),
		states:  desc("devinfo_attachments", "Attachments on the node, by state.", []string{"state"}, nil),
		series:  desc("devinfo_attachment_info", "An attachment on the node and its device, 1.", seriesLabels(), nil),
		unnamed: desc("devinfo_attachments_unnamed", "Attachments that devinfo_attachment_info leaves out.", nil, nil),
		at:      desc("devinfo_check_timestamp_seconds", "When the attachments were looked at last.", nil, nil),
	}
}

// Register has a registry serve what the agent knows and counts. The names are in
// docs/agent.md. A scrape asks nothing of the node.
func (a *Agent) Register(to prometheus.Registerer, of build.Info) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "devinfo_agent_info", Help: "The agent, 1.", ConstLabels: prometheus.Labels{"version": of.Version, "revision": of.Revision},
	})
	info.Set(1)
	c := a.counters
	to.MustRegister(info, c.installs, c.sweeps, c.collected, c.left, collector{a, describe()})
	if a.Injection != nil {
		to.MustRegister(c.injection.answers, c.injection.withheld, c.injection.disagreements, c.injection.durations, c.injection.staged)
	}
}

type collector struct {
	*Agent
	descriptions
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.ok, c.descriptions.plugin, c.refused, c.states, c.series, c.unnamed, c.at} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, part := range c.Parts() {
		ok := 1.0
		if c.trouble(part) != nil {
			ok = 0
		}
		gauge(c.ok, ok, part)
	}
	c.mu.Lock()
	now, plugin, refusals := c.census, c.Agent.plugin, c.Agent.refusals
	c.mu.Unlock()
	if refusals != nil {
		to <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(refusals.Count))
	}
	if plugin != nil && plugin.Ours {
		gauge(c.descriptions.plugin, 1, plugin.Version, strconv.Itoa(plugin.JournalFormat))
	}
	if now.at.IsZero() {
		return // nothing was seen yet
	}
	for _, state := range classes() {
		gauge(c.states, float64(now.states[state]), state)
	}
	for _, s := range now.series {
		gauge(c.series, 1, s[:]...)
	}
	gauge(c.unnamed, float64(now.unnamed))
	gauge(c.at, float64(now.at.UnixNano())/float64(time.Second))
}
