package deploy

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
)

// A target is scraped each minute for an hour.
type target struct {
	labels map[string]string         // labels from the PodMonitor, unless the metric has its own
	text   func(minute int64) string // in the exposition format
}

// scraped returns the series that Prometheus stores for the targets.
func scraped(t *testing.T, targets ...target) []storage.Series {
	t.Helper()
	found := map[uint64]*promql.Series{}
	for minute := range int64(60) {
		for _, from := range targets {
			p := textparse.NewPromParser([]byte(from.text(minute)), labels.NewSymbolTable(), false)
			for entry, err := p.Next(); !errors.Is(err, io.EOF); entry, err = p.Next() {
				must(t, err)
				if entry == textparse.EntrySeries {
					_, _, value := p.Series()
					lset := from.label(p)
					if found[lset.Hash()] == nil {
						found[lset.Hash()] = &promql.Series{Metric: lset}
					}
					s := found[lset.Hash()]
					s.Floats = append(s.Floats, promql.FPoint{T: minute * time.Minute.Milliseconds(), F: value})
				}
			}
		}
	}
	var all []storage.Series
	for _, s := range found {
		all = append(all, promql.NewStorageSeries(*s))
	}
	return all
}

func (t target) label(p textparse.Parser) labels.Labels {
	var own labels.Labels
	p.Labels(&own)
	b := labels.NewBuilder(own)
	for name, value := range t.labels {
		if !own.Has(name) {
			b.Set(name, value)
		}
	}
	return b.Labels()
}

// always returns a text that does not change.
func always(text string) func(int64) string { return func(int64) string { return text } }

// vfs returns metrics of sriov-network-metrics-exporter for two VFs of testdata/hosts/mlx5-switchdev.txtar. The pod
// has the first one, which receives 10 bytes per second.
func vfs(minute int64) string {
	return fmt.Sprintf(`# HELP sriov_vf_rx_bytes Statistic rx_bytes.
# TYPE sriov_vf_rx_bytes counter
sriov_vf_rx_bytes{numa_node="0",pciAddr="0000:03:00.2",pf="p0",vf="0"} %d
sriov_vf_rx_bytes{numa_node="0",pciAddr="0000:03:00.4",pf="p0",vf="2"} %d
`, 600*minute, 6*minute)
}

// interfaces returns node_exporter's metrics of interfaces and RDMA devices: 20 bytes per second to the VF's
// representor, 30 to its RDMA device, and 2 dropped packets.
func interfaces(minute int64) string {
	return fmt.Sprintf(`# HELP node_network_transmit_bytes_total Network device statistic transmit_bytes.
# TYPE node_network_transmit_bytes_total counter
node_network_transmit_bytes_total{device="eth0"} %[1]d
node_network_transmit_bytes_total{device="eth4"} %[2]d
node_network_transmit_bytes_total{device="p0"} %[1]d
# HELP node_network_receive_drop_total Network device statistic receive_drop.
# TYPE node_network_receive_drop_total counter
node_network_receive_drop_total{device="eth4"} %[3]d
node_network_receive_drop_total{device="p0"} %[1]d
# HELP node_infiniband_port_data_received_bytes_total Number of data octets received on all links
# TYPE node_infiniband_port_data_received_bytes_total counter
node_infiniband_port_data_received_bytes_total{device="mlx5_0",port="1"} %[1]d
node_infiniband_port_data_received_bytes_total{device="mlx5_2",port="1"} %[4]d
`, 7*minute, 1200*minute, 120*minute, 1800*minute)
}

// node returns the targets of a node. The exporters' pods are in another namespace.
func node(name, agent string) []target {
	exporter := func(pod string) map[string]string {
		return map[string]string{"instance": name, "namespace": "monitoring", "pod": pod}
	}
	return []target{
		{map[string]string{"instance": name, "namespace": "devinfo", "pod": "devinfo-agent-x7f2k"}, always(agent)},
		{exporter("sriov-metrics-exporter-b5q9z"), vfs},
		{exporter("node-exporter-c8d4w"), interfaces},
	}
}

// holder returns the pod that has the VF according to the metrics.
func holder(t *testing.T, text string) (namespace, pod string) {
	t.Helper()
	found := regexp.MustCompile(`(?m)^devinfo_attachment_info\{.*namespace="([^"]*)".*pciAddr="0000:03:00.2".*pod="([^"]*)".*\} 1$`).FindAllStringSubmatch(text, -1)
	if len(found) != 1 {
		t.Fatalf("%d attachments of 0000:03:00.2, want one:\n%s", len(found), text)
	}
	return found[0][1], found[0][2]
}

// joins returns the documented expressions that join our metric with one of an exporter, by the exporter's metric.
func joins(t *testing.T) map[string]string {
	t.Helper()
	found, theirs := map[string]string{}, regexp.MustCompile(`(?:sriov|node)_[a-z_]+`)
	add := func(expr, where string) {
		if name := theirs.FindString(expr); name != "" && strings.Contains(expr, "devinfo_attachment_info") {
			found[name+where] = expr
		}
	}
	for _, expr := range strings.Split(block(t, "promql", "devinfo_attachment_info"), "\n\n") {
		add(expr, " in docs")
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$namespace", ".*")
	for _, p := range grafana(t).Panels {
		for _, target := range p.Targets {
			add(variables.Replace(target.Expr), "")
		}
	}
	return found
}

func TestDocumentedJoinsFindPodOfDevice(t *testing.T) {
	text := read(t, "testdata/metrics.txt") // output of /metrics of an agent in a cluster
	namespace, pod := holder(t, text)
	// On the other node no pod has the VF with this address.
	all := scraped(t, append(node("worker-1", text), node("worker-2", "")...)...)
	got := map[string]map[string]float64{}
	for name, expr := range joins(t) {
		got[name] = map[string]float64{}
		for _, s := range ask(t, all, expr, 30*time.Minute) {
			of := s.Metric.Get("namespace") + "/" + s.Metric.Get("pod") + "/" + s.Metric.Get("interface")
			got[name][of] += s.F
		}
	}
	of := namespace + "/" + pod + "/net1"
	want := map[string]map[string]float64{
		"sriov_vf_rx_bytes in docs":                      {of: 600 * 30},
		"node_network_transmit_bytes_total in docs":      {of: 20},
		"sriov_vf_rx_bytes":                              {of: 10},
		"node_infiniband_port_data_received_bytes_total": {of: 30},
		"node_network_receive_drop_total":                {of: 2},
	}
	same(t, "joins", got, want)
}
