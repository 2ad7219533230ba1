package deploy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// A sample is a value at a point in time.
type sample struct {
	at    int64 // milliseconds
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// A set iterates over series for the engine.
type set struct {
	list []storage.Series
	next int
}

func (s *set) Next() bool                        { s.next++; return s.next <= len(s.list) }
func (s *set) At() storage.Series                { return s.list[s.next-1] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// written parses series in the notation of promtool's tests, with one sample per minute.
func written(t *testing.T, text string) (all []storage.Series) {
	t.Helper()
	for line := range strings.Lines(text) {
		lset, values, err := parser.ParseSeriesDesc(strings.TrimSpace(line))
		must(t, err)
		var list []chunks.Sample
		for minute, v := range values {
			if !v.Omitted {
				list = append(list, sample{at: int64(minute) * time.Minute.Milliseconds(), value: v.Value})
			}
		}
		all = append(all, storage.NewListSeries(lset, list))
	}
	return all
}

// ask evaluates an expression with Prometheus' engine at a time after the first sample.
func ask(t *testing.T, all []storage.Series, expr string, after time.Duration) promql.Vector {
	t.Helper()
	stored := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
		for _, s := range all {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
				found = append(found, s)
			}
		}
		return &set{list: found}
	}}}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: 5 * time.Minute})
	query, err := engine.NewInstantQuery(t.Context(), stored, nil, expr, time.Unix(0, 0).Add(after))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	vector, err := query.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return vector
}

// fires returns the instances that an alert fires for at a time. Its expression must have been true in each minute of
// the rule's "for".
func fires(t *testing.T, alert, series string, after time.Duration) (instances []string) {
	t.Helper()
	all := written(t, series)
	for _, r := range rules(t) {
		if r.Alert != alert {
			continue
		}
		held := map[string]int{}
		minutes := int(time.Duration(r.For)/time.Minute) + 1
		for minute := range minutes {
			for _, s := range ask(t, all, r.Expr, after-time.Duration(minute)*time.Minute) {
				held[s.Metric.Get("instance")]++
			}
		}
		for instance, times := range held {
			if times == minutes {
				instances = append(instances, instance)
			}
		}
	}
	return instances
}

func TestAlertsFireForFailuresOnly(t *testing.T) {
	const hour = time.Hour
	const agent, agentUp = `devinfo_agent_info{instance="a",version="1"} `, `up{instance="a",job="devinfo/devinfo-agent"} `
	const driver, driverUp = `devinfo_dra_nri_connected{instance="a"} `, `up{instance="a",job="cni-dra-driver/cni-dra-driver"} `
	const onNode = `kube_node_info{instance="kube-state-metrics",node="a"} `
	const ready = `kube_node_status_condition{instance="kube-state-metrics",condition="Ready",node="a",status="true"} `
	// The node is not ready from minute 30 on. Its DaemonSet pods remain, but their targets do not answer.
	const notReady = onNode + "1x120\n" + ready + "1x30 0x90\n"
	// The node comes back after 20 minutes, and its pods two minutes later.
	const reboots = onNode + "1x120\n" + ready + "1x30 0x20 1x70\n"
	for _, c := range []struct {
		alert, series string
		after         time.Duration
		instance      string // "" = the alert does not fire
	}{
		{"DevinfoAgentGone", agent + "1x120\n" + agentUp + "1x120\n" + onNode + "1x120", hour, ""},
		{"DevinfoAgentGone", agent + "1x30\n" + onNode + "1x120", hour, "a"},      // the agent's pod is not created again
		{"DevinfoAgentGone", agent + "1x30\n" + onNode + "1x30", hour, ""},        // the node does not exist any more either
		{"DevinfoAgentGone", agent + "1x30", hour, ""},                            // the node's metric is missing, so it is unknown whether the node exists
		{"DevinfoAgentGone", agent + "1x30\n" + agentUp + "1x30 0x90", hour, "a"}, // the pod exists
		{"DevinfoAgentGone", `up{instance="a",job="node-exporter"} 0x120`, hour, ""},
		{"DevinfoAgentGone", agent + "1x30\n" + strings.Replace(agent, `"1"`, `"2"`, 1) + "_x30 1x40\n" + onNode + "1x120", hour, ""},
		{"DevinfoAgentGone", agent + "1x30\n" + onNode + "1x1900", 30 * hour, ""},
		{"DevinfoAgentGone", notReady + agent + "1x30\n" + agentUp + "1x30 0x90", hour, ""},
		{"DevinfoAgentGone", notReady + agent + "1x30", hour, ""}, // the pod was deleted in between
		{"DevinfoAgentGone", reboots + agent + "1x30 _x22 1x70\n" + agentUp + "1x30 0x22 1x70", 51 * time.Minute, ""},
		{"DevinfoAgentGone", onNode + "1x120\n" + ready + "1x120\n" + agent + "1x30\n" + agentUp + "1x30 0x90", hour, "a"},
		// The agent does not come back.
		{"DevinfoAgentGone", reboots + agent + "1x30\n" + agentUp + "1x30 0x90", 80 * time.Minute, "a"},
		{"DevinfoDRADriverGone", notReady + driver + "1x30\n" + driverUp + "1x30 0x90", hour, ""},
		{"DevinfoDRADriverGone", notReady + driver + "1x30", hour, ""},
		{"DevinfoDRADriverGone", reboots + driver + "1x30 _x22 1x70\n" + driverUp + "1x30 0x22 1x70", 51 * time.Minute, ""},
		{"DevinfoDRADriverGone", onNode + "1x120\n" + ready + "1x120\n" + driver + "1x30\n" + driverUp + "1x30 0x90", hour, "a"},
		{"DevinfoDRADriverGone", onNode + "1x120\n" + ready + "1x120\n" + driver + "1x30", hour, "a"},
		{"DevinfoDRADriverGone", reboots + driver + "1x30\n" + driverUp + "1x30 0x90", 80 * time.Minute, "a"},
		{"DevinfoDRADriverGone", driver + "0x120\n" + driverUp + "1x120\n" + onNode + "1x120", hour, ""},
		{"DevinfoDRADriverGone", driver + "1x30\n" + onNode + "1x120", hour, "a"},
		{"DevinfoDRADriverGone", driver + "1x30\n" + onNode + "1x30", hour, ""},
		{"DevinfoDRADriverGone", driver + "1x30\n" + driverUp + "0x120", hour, "a"},
		{"DevinfoDRASharingNotSupported", `devinfo_dra_sharing_supported{instance="a"} 0x120`, hour, "a"},
		{"DevinfoDRASharingNotSupported", `devinfo_dra_sharing_supported{instance="a"} 1x120`, hour, ""},
		{"DevinfoAgentComponentUnhealthy", `devinfo_agent_component_healthy{instance="a",component="nri"} 0x120`, hour, "a"},
		{"DevinfoAgentComponentUnhealthy", `devinfo_agent_component_healthy{instance="a",component="nri"} 1x120`, hour, ""},
		{"DevinfoAttachmentsNotSeen", `devinfo_last_check_timestamp_seconds{instance="a"} 60x120`, hour, "a"},
		{"DevinfoAttachmentsNotSeen", `devinfo_last_check_timestamp_seconds{instance="a"} 0+60x120`, hour, ""},
		{"DevinfoAttachmentsStale", `devinfo_attachments{instance="a",state="stale"} 1x120`, hour, "a"},
		{"DevinfoAttachmentsStale", `devinfo_attachments{instance="a",state="ok"} 1x120`, hour, ""},
		{"DevinfoAttachmentsOrphaned", `devinfo_attachments{instance="a",state="orphaned"} 1x120`, hour, "a"},
		{"DevinfoAttachmentsOrphaned", `devinfo_attachments{instance="a",state="orphaned"} 0x120`, hour, ""},
		{"DevinfoPluginIsReplaced", `devinfo_plugin_installs_total{instance="a",result="replaced"} 0+1x120`, hour, "a"},
		{"DevinfoPluginIsReplaced", `devinfo_plugin_installs_total{instance="a",result="replaced"} 0 1x119`, hour, ""},
		{"DevinfoContainersRejected", `devinfo_injections_total{instance="a",result="rejected",reason="file"} 0x55 1x60`, hour, "a"},
		{"DevinfoContainersRejected", `devinfo_injections_total{instance="a",result="injected",reason=""} 0+1x120`, hour, ""},
	} {
		got := fires(t, c.alert, c.series, c.after)
		if len(got) > 1 || (len(got) == 1) != (c.instance != "") || len(got) == 1 && got[0] != c.instance {
			t.Errorf("%s with %s: fires for %q", c.alert, c.series, got)
		}
	}
}
