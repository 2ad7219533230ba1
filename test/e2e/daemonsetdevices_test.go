//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestADaemonSetOffersTheNodesDevices gives rules to the DaemonSet. The devices must be
// the node's own, and it need not have any: so there is one bridge, made while the agents run.
func TestADaemonSetOffersTheNodesDevices(t *testing.T) {
	if cluster.kit == "" {
		t.Skip("only in a cluster that the tests make: they change the DaemonSet")
	}
	a := daemonSet(t)
	giveRules(t, "devices:\n- ifNames: ["+pluggedBridge+"]\n  as: shared\n")
	t.Run("HotPlug", hotPlug)
	if log := a.log(); strings.Contains(log, "--pod-resources-socket") || strings.Contains(log, "level=ERROR") {
		t.Errorf("the agent's log:\n%s", log)
	}
}

const pluggedBridge = "e2e-hotplug0"

func hotPlug(t *testing.T) {
	s := begin(t)
	const device = "net-" + pluggedBridge
	isOffered(t, false, device)
	onNode(t, "ip", "link", "add", pluggedBridge, "type", "bridge")
	t.Cleanup(func() { _, _ = tryOnNode("", "ip", "link", "del", pluggedBridge) }) // if the test fails before it does so
	isOffered(t, true, device)
	class := s.classWhere(ours("ifName", pluggedBridge), opaque("net1", s.on("10.11.83.0/24", map[string]any{"type": "bridge"})))
	s.pod("a", s.template(requests(request("lan", class))))
	s.in("a", "net1", "10.11.83.")
	if ports := onNode(t, "ip", "-o", "link", "show", "master", pluggedBridge); len(strings.Split(ports, "\n")) != 1 || ports == "" {
		t.Errorf("ports of %s:\n%s", pluggedBridge, ports)
	}
	s.delete("a")
	if ports := onNode(t, "ip", "-o", "link", "show", "master", pluggedBridge); ports != "" {
		t.Errorf("ports of %s are left:\n%s", pluggedBridge, ports)
	}
	onNode(t, "ip", "link", "del", pluggedBridge)
	isOffered(t, false, device)
}

// giveRules gives rules to the agents of the DaemonSet, by the kustomization of docs/dra/inventory.md.
func giveRules(t *testing.T, rules string) {
	t.Helper()
	dir := newDir(t, root) // where ../deploy is what the page means
	kustomization := block(t, "dra/inventory.md", "\nand with kustomize ", "yaml")
	for name, text := range map[string]string{"kustomization.yaml": kustomization, "devices.yaml": rules} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	shell(t, "kubectl apply -k "+filepath.Base(dir))
	ready(t, system, system)
}
