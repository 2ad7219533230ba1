//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	series = regexp.MustCompile(`(?m)^([a-z_]+)\{(.*)\} (\S+)$`)
	label  = regexp.MustCompile(`([a-zA-Z_]+)="([^"]*)"`)
)

// scrape gives the series of a metric of the agent, as labels and value.
func (a *nodeAgent) scrape(t *testing.T, metric string) (list []map[string]string) {
	t.Helper()
	status, text := a.get(t, "/metrics")
	if status != 200 {
		t.Fatalf("/metrics: %d: %s", status, text)
	}
	for _, found := range series.FindAllStringSubmatch(text, -1) {
		if found[1] != metric {
			continue
		}
		labels := map[string]string{"": found[3]}
		for _, l := range label.FindAllStringSubmatch(found[2], -1) {
			labels[l[1]] = l[2]
		}
		list = append(list, labels)
	}
	return list
}

// metrics has a pod's attachment among the agent's series, which joins with what
// node_exporter reads of the interface below, /sys/class/net/DEVICE/statistics, and with the
// PCI address of the card.
func metrics(t *testing.T, m *multus, a *nodeAgent) {
	s := begin(t)
	network := s.lan(m, "lan", "10.11.90.0/24")
	s.create(withNetworks("a", nil, "lan"))
	s.has("container", s.running("a"), files("net1"))
	want := map[string]string{
		"": "1", "pod": "a", "namespace": s.name, "interface": "net1", "network": network["name"].(string), "type": "pci",
		"pciAddr": m.card, "pf": "", "vf": "", "device": "", "rdma_device": "",
	}
	eventually(t, limit, func() error {
		for _, labels := range a.scrape(t, "devinfo_attachment_info") {
			if maps.Equal(labels, want) {
				return nil
			}
		}
		return fmt.Errorf("devinfo_attachment_info has not\n%v, but\n%v", want, a.scrape(t, "devinfo_attachment_info"))
	})
	for _, parts := range a.scrape(t, "devinfo_agent_ok") {
		if parts[""] != "1" {
			t.Errorf("devinfo_agent_ok: %v", parts)
		}
	}
	states := map[string]string{}
	for _, labels := range a.scrape(t, "devinfo_attachments") {
		if labels[""] != "0" {
			states[labels["state"]] = labels[""]
		}
	}
	if diff := cmp.Diff(map[string]string{"ok": "1"}, states); diff != "" {
		t.Errorf("devinfo_attachments (- is wanted):\n%s", diff)
	}
	s.delete("a")
	clean(t)
	eventually(t, limit, func() error {
		if left := a.scrape(t, "devinfo_attachment_info"); left != nil {
			return fmt.Errorf("a pod that is gone is still there: %v", left)
		}
		return nil
	})
}
