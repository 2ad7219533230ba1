package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/pkg/build"
)

// metrics are what /metrics shows: they are set when something happens, and a scrape asks
// nothing of the node. One without labels that is a vector is absent until it is known.
type metrics struct {
	installs, sweeps, collected, refused    *prometheus.CounterVec
	ok, plugin, states, series, unnamed, at *prometheus.GaugeVec

	left      prometheus.Gauge
	injection injectionCounters
}

// counterVec counts by a label from 0 on, so that the first one is seen as an increase.
func counterVec[T ~string](name, help, label string, values ...T) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		v.WithLabelValues(string(value))
	}
	return v
}

func gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func newMetrics() metrics {
	return metrics{
		installs:  counterVec("devinfo_plugin_installs_total", "How often the plugin was put in place, by result.", "result", "installed", "replaced"),
		sweeps:    counterVec("devinfo_sweeps_total", "Sweeps, by result.", "result", "ok", "failed"),
		collected: counterVec("devinfo_swept_total", "What sweeps have removed.", "what", "attachment", "file"),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "devinfo_refused_adds_total", Help: "ADDs that the plugin has refused because another pod, or a claim, has the device.",
		}, nil),
		ok:      gaugeVec("devinfo_agent_ok", "1 where a part of the agent is well, as in /healthz.", "part"),
		plugin:  gaugeVec("devinfo_plugin_info", "The plugin that is on the node, 1.", "version", "journal_format"),
		states:  gaugeVec("devinfo_attachments", "Attachments on the node, by state.", "state"),
		series:  gaugeVec("devinfo_attachment_info", "An attachment on the node and its device, 1.", seriesLabels()...),
		unnamed: gaugeVec("devinfo_attachments_unnamed", "Attachments that devinfo_attachment_info leaves out."),
		at:      gaugeVec("devinfo_check_timestamp_seconds", "When the attachments were looked at last."),
		left: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "devinfo_sweep_left", Help: "Dead attachments whose delegates the agent cannot run: the runtime, or devinfoctl gc, has to remove them.",
		}),
		injection: newInjectionCounters(),
	}
}

// Register has a registry serve what the agent knows and counts. The names are in docs/agent.md.
func (a *Agent) Register(to prometheus.Registerer, of build.Info) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "devinfo_agent_info", Help: "The agent, 1.", ConstLabels: prometheus.Labels{"version": of.Version, "revision": of.Revision},
	})
	info.Set(1)
	m := a.metrics
	to.MustRegister(info, m.installs, m.sweeps, m.collected, m.refused, m.ok, m.plugin, m.states, m.series, m.unnamed, m.at, m.left)
	if i := m.injection; a.Injection != nil {
		to.MustRegister(i.answers, i.withheld, i.disagreements, i.durations, i.staged)
	}
}
