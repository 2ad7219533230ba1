//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// TestADaemonSetOffersTheNodesDevices gives the rules to the DaemonSet, by the commands of
// docs/inventory.md. The node's devices are real, which a cluster need not have, so they are
// one bridge, made once the agents run.
func TestADaemonSetOffersTheNodesDevices(t *testing.T) {
	if cluster.kit == "" {
		t.Skip("only in a cluster that the tests make: they change the DaemonSet")
	}
	a := daemonSet(t)
	dir, err := os.MkdirTemp("", "e2e-rules-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	rules := filepath.Join(dir, "devices.yaml")
	if err := os.WriteFile(rules, []byte("devices:\n- ifNames: ["+pluggedBridge+"]\n  as: shared\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shell(t, strings.ReplaceAll(commandsFor(t), "--from-file=devices.yaml", "--from-file="+rules))
	ready(t, system, system)
	t.Run("HotPlug", hotPlug)
	if log := a.log(); strings.Contains(log, "--pod-resources-socket") || strings.Contains(log, "level=ERROR") {
		t.Errorf("the agent's log:\n%s", log)
	}
}

const pluggedBridge = "e2e-hotplug0"

func hotPlug(t *testing.T) {
	offered := func(want bool) {
		t.Helper()
		devices(t, func(have map[string]resourceapi.Device) error {
			if _, is := have["net-"+pluggedBridge]; is != want || len(have) == 0 {
				return fmt.Errorf("offered: %v", have)
			}
			return nil
		})
	}
	s := begin(t)
	offered(false)
	onNode(t, "ip", "link", "add", pluggedBridge, "type", "bridge")
	offered(true)
	network := map[string]any{"cniVersion": "1.0.0", "name": s.name + "-bridge", "plugins": []map[string]any{
		{"type": "bridge", "ipam": map[string]any{"type": "host-local", "subnet": "10.11.83.0/24"}},
	}}
	class := s.classWhere(ours("ifName", pluggedBridge), opaque("net1", network))
	s.pod("a", s.template(requests(request("lan", class))))
	if v := s.running("a"); v.interfaceIn("net1", "10.11.83.") == nil {
		t.Errorf("net1 has no address 10.11.83...: %+v", v.Interfaces)
	}
	s.delete("a")
	onNode(t, "ip", "link", "del", pluggedBridge)
	offered(false)
}

// commandsFor are those by which docs/inventory.md gives the rules to the agents.
func commandsFor(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/inventory.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "## On your nodes")
	_, section, shown := strings.Cut(section, "```sh\n")
	commands, _, closed := strings.Cut(section, "```")
	if !found || !shown || !closed {
		t.Fatal("docs/inventory.md has no commands")
	}
	return commands
}
