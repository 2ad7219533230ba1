package deploy

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/storage"

	"devinfo-cni.io/test/difftest"
)

// exporters are metrics of sriov-network-metrics-exporter and node_exporter on a node with the VFs of
// testdata/hosts/mlx5-switchdev.txtar, in the notation of written. The pod has the first VF. It receives 10 bytes per
// second, its representor sends 20, and its RDMA device receives 30. 2 packets per second are dropped. The exporters'
// pods are in another namespace.
const exporters = `sriov_vf_rx_bytes{SRIOV,numa_node="0",pciAddr="0000:03:00.2",pf="p0",vf="0"} 0+600x59
sriov_vf_rx_bytes{SRIOV,numa_node="0",pciAddr="0000:03:00.4",pf="p0",vf="2"} 0+6x59
node_network_transmit_bytes_total{NODE,device="eth0"} 0+7x59
node_network_transmit_bytes_total{NODE,device="eth4"} 0+1200x59
node_network_transmit_bytes_total{NODE,device="p0"} 0+7x59
node_network_receive_drop_total{NODE,device="eth4"} 0+120x59
node_network_receive_drop_total{NODE,device="p0"} 0+7x59
node_infiniband_port_data_received_bytes_total{NODE,device="mlx5_0",port="1"} 0+7x59
node_infiniband_port_data_received_bytes_total{NODE,device="mlx5_2",port="1"} 0+1800x59`

// scraped returns the series that Prometheus stores for a node with these exporters and the attachments of an agent. Its
// labels from a PodMonitor do not replace those of a metric.
func scraped(t *testing.T, node string, attachments []string) (all []storage.Series) {
	t.Helper()
	of := `instance="` + node + `"`
	exported := strings.NewReplacer("SRIOV", of+`,namespace="monitoring",pod="sriov-metrics-exporter-b5q9z"`, "NODE", of+`,namespace="monitoring",pod="node-exporter-c8d4w"`)
	all = written(t, exported.Replace(exporters))
	for _, line := range attachments {
		all = append(all, written(t, strings.Replace(line, "{", "{"+of+",", 1)+"x59")...)
	}
	return all
}

var attachment = regexp.MustCompile(`(?m)^devinfo_attachment_info\{.*\} 1$`)

// variables of the dashboard, as for all nodes and namespaces.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$namespace", ".*")

// joins returns the documented expressions that join our metric with one of an exporter, by the exporter's metric.
func joins(t *testing.T) map[string]string {
	t.Helper()
	found, theirs := map[string]string{}, regexp.MustCompile(`(?:sriov|node)_[a-z_]+`)
	add := func(expr, where string) {
		if name := theirs.FindString(expr); name != "" && strings.Contains(expr, "devinfo_attachment_info") {
			found[name+where] = expr
		}
	}
	for _, expr := range strings.Split(difftest.Block(t, docs, "promql", "devinfo_attachment_info"), "\n\n") {
		add(expr, " in docs")
	}
	for _, p := range grafana(t).Panels {
		for _, target := range p.Targets {
			add(variables.Replace(target.Expr), "")
		}
	}
	return found
}

func TestDocumentedJoinsFindPodOfDevice(t *testing.T) {
	text := difftest.Read(t, "testdata/metrics.txt") // output of /metrics of an agent in a cluster
	// On the other node no pod has the VF with this address.
	all := append(scraped(t, "worker-1", attachment.FindAllString(text, -1)), scraped(t, "worker-2", nil)...)
	got := map[string]map[string]float64{}
	for name, expr := range joins(t) {
		got[name] = map[string]float64{}
		for _, s := range ask(t, all, expr, 30*time.Minute, 30*time.Minute) {
			of := s.Metric.Get("namespace") + "/" + s.Metric.Get("pod") + "/" + s.Metric.Get("interface")
			got[name][of] += s.Floats[0].F
		}
	}
	const of = "e2e-vrkph/a/net1" // has 0000:03:00.2
	want := map[string]map[string]float64{
		"sriov_vf_rx_bytes in docs":                      {of: 600 * 30},
		"sriov_vf_rx_bytes":                              {of: 10},
		"node_infiniband_port_data_received_bytes_total": {of: 30},
		"node_network_receive_drop_total":                {of: 2},
	}
	difftest.Same(t, "joins", got, want)
}
