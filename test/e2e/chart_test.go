//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// TestChartInstallation installs devinfo-agent with Helm as docs/install.md describes, changes values, and removes
// everything. bin/helm has the version that test/deploy uses.
func TestChartInstallation(t *testing.T) {
	needsKit(t, "they put Multus on the node")
	findCard(t)
	withMultus(t)
	onNode(t, append([]string{"rm", "-f"}, agentFiles()...)...) // files of earlier tests
	before, node := objectsOfOurs(t), listing(t)
	a := installChart(t, nil)
	play(t, a, a.explain, []scenario[*nodeAgent]{
		{"UpgradeInstallsSettings", upgraded},
		{"PluginAndSettingsAreInstalled", installed},
		{"DocumentedCommandsRemoveAgentWhenUnused", removed},
	})
	helm(t, installation(t, "docs/remove.md", "`(helm uninstall [^`]*)`"))
	shell(t, installation(t, "docs/remove.md", "`(kubectl delete namespace [^`]*)`"))
	difftest.Same(t, "objects of the cluster", objectsOfOurs(t), before)
	asBefore(t, node)
}

func helm(t *testing.T, commands string) string {
	t.Helper()
	return shell(t, "export PATH=$PWD/bin:$PATH\n"+commands)
}

// installation returns the command in a page that matches a regular expression. It replaces the registry's
// images by the test cluster's, whose tag is a digit.
func installation(t *testing.T, page, expression string) string {
	t.Helper()
	found := regexp.MustCompile(expression).FindStringSubmatch(content(t, page))
	if found == nil {
		t.Fatalf("%s has no command like %s", page, expression)
	}
	return strings.NewReplacer("registry.example.com/net", "cluster.local", "v0.1.0", "1").Replace(found[1])
}

// objectsOfOurs returns the objects of the cluster whose name contains one of our names, except events.
func objectsOfOurs(t *testing.T) []string {
	t.Helper()
	return strings.Fields(shell(t, `kinds=$(kubectl api-resources --verbs=list -o name | grep -v '^events' | paste -sd,)
all=$(kubectl get "$kinds" -A -o name --show-kind)
grep -E 'devinfo|cni-dra|`+driver+`' <<<"$all" | sort || true`))
}

// installChart installs the chart as documented, with additional values.
func installChart(t *testing.T, values map[string]any) *nodeAgent {
	t.Helper()
	a := &nodeAgent{endpoint: "http://" + address(onlyNode(t)) + ":9810"}
	t.Cleanup(func() {
		helm(t, "helm uninstall devinfo --namespace devinfo --ignore-not-found")
		shell(t, "kubectl delete namespace --ignore-not-found devinfo")
		onNode(t, append([]string{"rm", "-f", nodeLog}, agentFiles()...)...)
	})
	shell(t, "$E2E_CLUSTER image devinfo-agent bin/devinfo-agent bin/devinfo bin/devinfoctl")
	shell(t, "$E2E_CLUSTER image cni-dra-driver bin/cni-dra-driver bin/cni-dra-gate bin/devinfo bin/devinfoctl")
	helm(t, installation(t, "docs/install.md", `(?s)\n(helm install .*?[^\\])\n`)+" -f "+valuesFile(t, values))
	ready(t, agentNamespace, agentName)
	if out := onNode(t, "/opt/cni/bin/devinfo", "--version"); !strings.Contains(out, "devinfo") {
		t.Errorf("the plugin on the node says %s", out)
	}
	return a
}

func valuesFile(t *testing.T, values map[string]any) (path string) {
	t.Helper()
	text, err := json.Marshal(values)
	must(t, err)
	path = filepath.Join(t.TempDir(), "values.yaml")
	must(t, os.WriteFile(path, text, 0o600))
	return path
}

func upgraded(t *testing.T, a *nodeAgent) {
	settings := map[string]any{"logFile": nodeLog, "allowedDevices": []string{cluster.card}, "injectDeviceNodes": true}
	text, err := json.Marshal(settings)
	must(t, err)
	a.settings = string(text)
	values := map[string]any{"metrics": map[string]any{"enabled": true}, "agent": map[string]any{"settings": map[string]any{"default.json": settings}}}
	helm(t, "helm upgrade devinfo deploy/charts/devinfo --namespace devinfo --reuse-values -f "+valuesFile(t, values))
	ready(t, agentNamespace, agentName)
	a.well(t)
}

// removed removes the plugin as docs/remove.md describes while a pod has a network with devinfo. The agent removes
// nothing and reports the reason. When the pod has been deleted, it removes all of its files.
func removed(t *testing.T, _ *nodeAgent) {
	s := begin(t)
	s.lan("lan", "10.11.97.0/24")
	s.create(withNetworks("a", nil, "lan"))
	s.running("a")
	commands := difftest.Block(t, filepath.Join(root, "docs/remove.md"), "sh", "agent.uninstall=true")
	uninstall, _, found := strings.Cut(commands, "kubectl -n devinfo rollout status")
	if !found {
		t.Fatal("docs/remove.md has no roll-out to wait for")
	}
	helm(t, uninstall)
	logged(t, agentNamespace, agentName, "the journal has 1 attachments")
	onNode(t, "test", "-x", "/opt/cni/bin/devinfo")
	s.delete("a")
	out := helm(t, commands)
	for _, path := range agentFiles() {
		if _, err := tryOnNode("", "test", "-e", path); err == nil {
			t.Errorf("%s is there still:\n%s", path, out)
		}
	}
}

// logged waits until the log of a DaemonSet's pod contains a text.
func logged(t *testing.T, namespace, name, text string) {
	t.Helper()
	eventually(t, limit, func() error {
		if log := logOf(t, namespace, name, -1); !strings.Contains(log, text) {
			return fmt.Errorf("the log does not contain %q:\n%s", text, log)
		}
		return nil
	})
}

// logOf returns the last lines of the log of a DaemonSet's pod; -1 = all. The text may be the error of kubectl.
func logOf(t *testing.T, namespace, name string, lines int) string {
	t.Helper()
	return shell(t, fmt.Sprintf("kubectl -n %s logs --tail=%d daemonset/%s 2>&1 || true", namespace, lines, name))
}
