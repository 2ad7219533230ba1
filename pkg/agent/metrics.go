package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/hostdev"
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
	shown := min(len(c.series), a.MaxSeries)
	for _, s := range c.series[:shown] {
		info(1, s[:]...)
	}
	gauge("devinfo_attachments_omitted", "Attachments that devinfo_attachment_info omits.")(float64(len(c.series) - shown))
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

// summary is the result of one check of all attachments, for the metrics.
type summary struct {
	at       time.Time // when the check ended
	states   map[string]int
	series   []series // sorted
	orphaned []journal.Key
}

// series is the values of seriesLabels for one attachment.
type series [10]string

// seriesLabels uses the names of sriov-network-metrics-exporter (pf, vf, pciAddr) and node_exporter
// (device), so that the metrics can be joined.
var seriesLabels = []string{"pod", "namespace", "interface", "network", "type", "pciAddr", "pf", "vf", "device", "rdma_device"}

// orphaned is the class of attachments whose DEL the runtime will never run: see inject.Plugin.Orphaned.
const orphaned = "orphaned"

// classes are the values of the label state.
var classes = []string{"ok", "adding", "changed", orphaned, "stale", "corrupt", "newer", "unknown"}

// state returns the class of an attachment: orphaned if the runtime does not know its sandbox, which attachments
// made outside Kubernetes never are, and changed if something differs from what ADD recorded. there is true if the
// metrics show the attachment: its ADD is complete, and its class is ok, changed or unknown.
func (a *Agent) state(checker *check.Checker, e *journal.Entry, err error) (state string, there bool) {
	found, report := checker.Check(e, err)
	switch state = strings.ToLower(string(found)); {
	case found == check.Newer:
		state = "newer"
	case found == check.Deleting: // by cni-dra-driver, which reports it
		state = "ok"
	case !slices.Contains(classes, state) || len(report.Changed()) > 0:
		state = "changed"
	}
	there = slices.Contains([]string{"ok", "changed", "unknown"}, state) && e != nil && e.Complete
	if !there && state != "adding" {
		return state, false
	}
	if _, pod := e.PodName(); a.injector != nil && pod != "" && a.injector.Orphaned(e.ContainerID, e.Time) {
		state = orphaned
	}
	return state, there
}

// look checks all attachments, stores the summary for the metrics and logs new orphaned attachments.
func (a *Agent) look(ctx context.Context) {
	c, err := a.summarize(ctx)
	if ctx.Err() != nil {
		return
	}
	a.report(Attachments, err)
	if err != nil {
		return // the metrics show the last summary and its time
	}
	if before := a.summary.Swap(&c); len(c.orphaned) > 0 && (before == nil || !slices.Equal(before.orphaned, c.orphaned)) {
		a.Log.Warn("the container runtime does not know the sandboxes of some attachments and may never delete them", "attachments", c.orphaned)
	}
}

func (a *Agent) summarize(ctx context.Context) (summary, error) {
	c := summary{states: map[string]int{}}
	_, checker, err := a.checker()
	if err != nil {
		return c, err
	}
	checker.Finder.Eswitches = hostdev.CacheEswitches(checker.Finder.Eswitches)
	keys, err := checker.Journal.All()
	if err != nil {
		return c, err
	}
	d := describer{checker.Finder, map[pci.Address]string{}}
	named := map[series]bool{} // a set, because two sandboxes of one pod may have equal series
	spread := pace{time.Now()}
	for _, key := range keys {
		spread.rest(ctx)
		if ctx.Err() != nil {
			return c, ctx.Err()
		}
		e, err := checker.Journal.Get(key)
		if err == nil && (e == nil || e.Refused != "") { // removed by DEL after All listed it, or never added
			continue
		}
		state, there := a.state(checker, e, err)
		c.states[state]++
		if state == orphaned {
			c.orphaned = append(c.orphaned, key)
		}
		if there {
			named[d.series(e)] = true
		}
	}
	c.series = slices.SortedFunc(maps.Keys(named), func(x, y series) int { return slices.Compare(x[:], y[:]) })
	c.at = time.Now()
	return c, nil
}

// describer finds the names of devices for the labels of one summary. It caches the names of interfaces, because a look-up for
// a PF in switchdev mode reads the files of all its representors.
type describer struct {
	*discovery.Finder
	ports map[pci.Address]string
}

// series returns the labels of an attachment, based on the information that ADD recorded. Labels that
// cannot be read are empty; devinfoctl check shows the errors.
func (d *describer) series(e *journal.Entry) series {
	namespace, name := e.PodName()
	kind, facts := e.Device.Type, map[string]string{"pci-address": e.Device.ID}
	if info, err := devinfo.Parse(e.Info); err == nil {
		kind, facts = string(info.Type), info.Texts()
	}
	var address, pf, vf, own string
	if a, err := pci.Parse(facts["pci-address"]); err == nil {
		address, own = a.String(), d.port(a)
		if fn, _, _ := d.Sys.PCI(a); fn.PF != nil {
			pf = d.port(*fn.PF)
			if n, ok, _ := d.Sys.VFIndex(*fn.PF, a); ok {
				vf = strconv.Itoa(n)
			}
		}
	}
	s := series{name, namespace, e.IfName, e.Network, kind, address, pf, vf, cmp.Or(facts["representor-device"], own), facts["rdma-device"]}
	for n := range s {
		s[n] = strings.ToValidUTF8(s[n], "\uFFFD")
	}
	return s
}

// port returns the name of a PCI function's interface in the node's network namespace. It returns "" if the
// function has no interface or several, or they cannot be read.
func (d *describer) port(a pci.Address) string {
	if name, known := d.ports[a]; known {
		return name
	}
	d.ports[a] = ""
	if ports, _ := hostdev.Ports(d.Sys, d.Interfaces, hostdev.Place{Bus: "pci", Name: a.String()}); len(ports) == 1 {
		d.ports[a] = ports[0].Name
	}
	return d.ports[a]
}
