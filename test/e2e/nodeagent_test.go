//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgentInstallation installs devinfo-agent with the manifests of docs/kustomize.md. The agent installs the plugin,
// and gives containers their device information.
func TestAgentInstallation(t *testing.T) {
	needsKit(t, "they put Multus and device plugins on the node")
	findCard(t)
	a := installAgent(t, map[string]any{"logFile": nodeLog, "allowedDevices": []string{cluster.card}, "injectDeviceNodes": true})
	withMultus(t)
	devicePlugin(t, pool{nicResource, []string{cluster.card}, ""})
	program(t, "userspace", standIn)
	play(t, a, a.explain, []scenario[*nodeAgent]{
		{"PluginAndSettingsAreInstalled", installed},
		{"ContainersGetFilesVariablesAndDeviceNodes", injected},
		{"PodWithUserNamespaceGetsDeviceInfo", userNamespace},
		{"RuntimeCanRequireAgent", agentRequired},
		{"ClaimsWorkBesideAgent", bothAgents},
		{"ExamplesAttachPods", examples},
		{"KubectlDevinfoShowsPodsAndNodeState", kubectlDevinfo},
		{"FiftyPodsLeaveNoState", fifty},
	})
}

// A nodeAgent is devinfo-agent as a DaemonSet.
type nodeAgent struct {
	settings string // text of default.json in the ConfigMap
	endpoint string // http://<node>:9810
}

const (
	agentNamespace = "devinfo"
	agentName      = "devinfo-agent"
)

// agentFiles returns the files that the agent puts on the node: the plugin, the settings, and their checksums.
func agentFiles() []string {
	return []string{"/opt/cni/bin/devinfo", "/opt/cni/bin/.devinfo.sha256", "/opt/cni/bin/.devinfo.cni-dra-driver.sha256", nodeSettings, "/etc/cni/devinfo/.node.json.sha256"}
}

// installAgent deploys the agent with these node settings.
func installAgent(t *testing.T, settings map[string]any) *nodeAgent {
	t.Helper()
	text, err := json.Marshal(settings)
	must(t, err)
	a := &nodeAgent{settings: string(text), endpoint: "http://" + address(onlyNode(t)) + ":9810"}
	t.Cleanup(func() {
		shell(t, "kubectl delete --ignore-not-found -k deploy/devinfo/overlays/metrics")
		onNode(t, append([]string{"rm", "-f", nodeLog}, agentFiles()...)...)
	})
	shell(t, "$E2E_CLUSTER image devinfo-agent bin/devinfo-agent bin/devinfo bin/devinfoctl")
	shell(t, "kubectl apply -f deploy/devinfo/base/namespace.yaml")
	shell(t, "kubectl -n devinfo create configmap devinfo-settings --from-literal=default.json='"+a.settings+"'")
	shell(t, "kubectl apply -k deploy/devinfo/overlays/metrics")
	ready(t, agentNamespace, agentName)
	return a
}

// patch changes the DaemonSet's pods with operations of JSON Patch, such as {"op": "add", "path":
// "/spec/template/spec/containers/0/args/-", "value": "-v4"}, and waits for the new pods. The end of the test reverts
// the change.
func (a *nodeAgent) patch(t *testing.T, operations string) {
	t.Helper()
	patch := func(operations string) {
		shell(t, "kubectl -n devinfo patch daemonset devinfo-agent --type json -p '["+operations+"]'")
		ready(t, agentNamespace, agentName)
	}
	patch(operations)
	t.Cleanup(func() {
		shell(t, "kubectl -n devinfo rollout undo daemonset devinfo-agent")
		ready(t, agentNamespace, agentName)
	})
}

// away removes the agent from the node until the end of the test.
func (a *nodeAgent) away(t *testing.T) {
	t.Helper()
	a.patch(t, `{"op": "add", "path": "/spec/template/spec/nodeSelector/e2e", "value": "nowhere"}`)
}

// well waits until all components of the agent are healthy.
func (a *nodeAgent) well(t *testing.T) {
	t.Helper()
	eventually(t, limit, func() error {
		text, err := get(a.endpoint + "/healthz")
		if err == nil && strings.Contains(text, "[-] ") {
			err = fmt.Errorf("/healthz: %s", text)
		}
		return err
	})
}

func (a *nodeAgent) log(t *testing.T) string {
	t.Helper()
	return logOf(t, agentNamespace, agentName, -1)
}

// explain logs the last lines of the agent's log.
func (a *nodeAgent) explain(t *testing.T) {
	t.Log("devinfo-agent's log:\n" + logOf(t, agentNamespace, agentName, 40))
}

// installed checks the files that the agent has put on the node, and that it restores them.
func installed(t *testing.T, a *nodeAgent) {
	for path, want := range map[string]string{"/healthz": "[+] nri", "/metrics": "devinfo_agent_component_healthy"} {
		if text, err := get(a.endpoint + path); err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v\n%s", path, err, text)
		}
	}
	if settings := onNode(t, "cat", nodeSettings); settings != a.settings {
		t.Errorf("%s on the node: %s, want %s", nodeSettings, settings, a.settings)
	}
	want, _, _ := strings.Cut(onNode(t, "sha256sum", binary(t, "devinfo")), " ")
	there := func() error {
		out, err := tryOnNode("", "sha256sum", "/opt/cni/bin/devinfo")
		if sum, _, _ := strings.Cut(out, " "); err == nil && sum != want {
			err = fmt.Errorf("the plugin on the node has the sum %s, want %s", sum, want)
		}
		return err
	}
	if err := there(); err != nil {
		t.Error(err)
	}
	onNode(t, "rm", "/opt/cni/bin/devinfo")
	eventually(t, limit, there)
}

// applyWith applies manifests below deploy/ with a component, from a kustomization in a directory of its own.
func applyWith(t *testing.T, manifests, component string) string {
	t.Helper()
	return shell(t, `dir=$(mktemp -d)
to() { realpath --relative-to="$dir" "deploy/$1"; }
printf 'resources: [%s]\ncomponents: [%s]\n' "$(to `+manifests+`)" "$(to `+component+`)" >"$dir/kustomization.yaml"
kubectl apply -k "$dir"
rm -r "$dir"`)
}

// asKubectl runs kubectl-devinfo like kubectl does.
func asKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t, args...)
	if err != nil {
		t.Errorf("kubectl devinfo %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func tryKubectl(t *testing.T, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin/kubectl-devinfo"), append(args, "--kubeconfig="+cluster.kubeconfig)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func kubectlDevinfo(t *testing.T, _ *nodeAgent) {
	applyWith(t, "devinfo/overlays/metrics", "devinfo/components/doctor") // doctor needs its directories
	ready(t, agentNamespace, agentName)
	s := begin(t)
	s.nad("lan", nicResource, s.macvlan("10.11.91.0/24", map[string]any{"type": "devinfo", "capabilities": capability}))
	s.lan("from-node", "10.11.99.0/24") // without a resource, so the API does not have the device
	s.create(withNetworks("a", []string{nicResource}, "lan", "from-node"))
	s.running("a")
	node := onlyNode(t).Name
	row := "a " + s.name + "/lan net1 pci " + cluster.card + " - - - - " + node
	for _, ask := range []struct{ args, want []string }{ // want has words with one space between them
		{[]string{"-n", s.name}, []string{row, "net2 ? ? "}},
		{[]string{"list", "-A", "--node", node}, []string{s.name + " " + row}},
		{[]string{"holder", cluster.card, "--node", node, "--no-headers"}, []string{s.name + " " + row}},
		{[]string{"pod", "a", "-n", s.name}, []string{"net1", "device " + cluster.card, "net2", `"pci-address": "` + cluster.card + `"`}},
		{[]string{"capture", node}, []string{"sys/bus/pci/devices/" + cluster.card, `"pod": "` + s.name + "/a\",\n" + `"resource": "` + nicResource + "\",\n" + `"device": "` + cluster.card + `"`}},
	} {
		out := asKubectl(t, ask.args...)
		var lines []string
		for line := range strings.Lines(out) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if !containsAll(strings.Join(lines, "\n"), ask.want) {
			t.Errorf("kubectl devinfo %s does not say %q:\n%.3000s", strings.Join(ask.args, " "), ask.want, out)
		}
	}
	// If cni-dra-driver has run on the node, doctor adds that it cannot see the attachments of claims from this pod.
	said := []string{"the devinfo plugin is installed, and is of this program's build", "no network configuration on this node contains devinfo"}
	if out := asKubectl(t, "doctor", node); !containsAll(out, said) || strings.Contains(out, "pod-resources") {
		t.Errorf("kubectl devinfo doctor does not say %q, or cannot see something:\n%s", said, out)
	}
}
