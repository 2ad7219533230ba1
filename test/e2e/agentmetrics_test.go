//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/test/undertest"
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

// metrics finds a pod's attachment among the agent's series.
func metrics(t *testing.T, a *nodeAgent) {
	s := begin(t)
	network := s.lan("lan", "10.11.90.0/24")
	s.create(withNetworks("a", nil, "lan"))
	s.has("container", s.running("a"), files("net1"))
	want := map[string]string{
		"": "1", "pod": "a", "namespace": s.name, "interface": "net1", "network": network["name"].(string), "type": "pci",
		"pciAddr": cluster.card, "pf": "", "vf": "", "device": "", "rdma_device": "",
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

// joined has Prometheus' engine join what the agent says with what the exporters say, by the
// expressions of docs/agent.md and of the dashboard: test/deploy. The node has no VF, so plugin
// and agent read the /sys of a captured host, and the pod's network declares one of its VFs.
func joined(t *testing.T, a *nodeAgent) {
	a.onCapturedHost(t, "mlx5-switchdev")
	s := begin(t)
	s.declaring("vf", map[string]any{"type": "pci", "pci": map[string]any{"pci-address": "0000:03:00.2", "representor-device": "eth4"}})
	s.create(withNetworks("a", nil, "vf"))
	s.running("a")
	want := map[string]string{
		"": "1", "pod": "a", "namespace": s.name, "interface": "net1", "network": s.name + "-vf", "type": "pci",
		"pciAddr": "0000:03:00.2", "pf": "p0", "vf": "0", "device": "eth4", "rdma_device": "mlx5_2",
	}
	eventually(t, limit, func() error {
		if diff := cmp.Diff([]map[string]string{want}, a.scrape(t, "devinfo_attachment_info")); diff != "" {
			return fmt.Errorf("devinfo_attachment_info (- is wanted):\n%s", diff)
		}
		return nil
	})
	_, text := a.get(t, "/metrics")
	path := filepath.Join(t.TempDir(), "metrics.txt")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	const test = "TestTheJoinsFindThePodOfADevice"
	if out := shell(t, "cd test/deploy && DEVINFO_SCRAPED="+path+" go test -count=1 -v -run ^"+test+"$ ."); !strings.Contains(out, "--- PASS: "+test) {
		t.Errorf("test/deploy has not evaluated the joins:\n%s", out)
	}
}

// onCapturedHost has plugin and agent read the /sys of a captured host until the end of the
// test.
func (a *nodeAgent) onCapturedHost(t *testing.T, name string) {
	t.Helper()
	dir := newDir(t, "")
	host, err := hosttxt.Load(filepath.Join(root, "testdata/hosts", name+".txtar"))
	if err == nil {
		err = undertest.Unpack(host, dir)
	}
	must(t, err)
	onNode(t, "chmod", "0755", dir)
	settings := func(text string) {
		shell(t, "kubectl -n devinfo create configmap devinfo-settings --from-literal=default.json='"+text+"' --dry-run=client -o yaml | kubectl apply -f -")
	}
	settings(`{"logFile": "` + nodeLog + `", "sysfs": "` + dir + `"}`)
	a.patch(t, `{"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "captured", "hostPath": {"path": "`+dir+`"}}},
		{"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-", "value": {"name": "captured", "mountPath": "`+dir+`", "readOnly": true}}`)
	t.Cleanup(func() { settings(a.settings) }) // before the patch is taken back: a new pod reads them at once
	a.well(t)
}
