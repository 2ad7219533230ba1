package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"sigs.k8s.io/yaml"
)

func TestTheChartMakesTheObjectsOfKustomize(t *testing.T) {
	for name, test := range map[string]struct{ dir, namespace, values string }{
		"agent":     {"devinfo", "devinfo", ``},
		"openshift": {"devinfo/overlays/openshift", "devinfo", `{openshift: true, agent: {cniBinDir: /var/lib/cni/bin, cniConfDir: /etc/kubernetes/cni/net.d}}`},
		"microk8s":  {"devinfo/overlays/microk8s", "devinfo", `{agent: {cniBinDir: /var/snap/microk8s/current/opt/cni/bin, cniConfDir: /var/snap/microk8s/current/args/cni-network}}`},
		"k3s":       {"devinfo/overlays/k3s", "devinfo", `{agent: {cniBinDir: /var/lib/rancher/k3s/data/cni, cniConfDir: /var/lib/rancher/k3s/agent/etc/cni/net.d}}`},
		"metrics":   {"devinfo/overlays/metrics", "devinfo", `{agent: {openMetrics: true}}`},
		"driver":    {"cni-dra-driver", "cni-dra-driver", `{agent: {enabled: false}, dra: {enabled: true}}`},
	} {
		t.Run(name, func(t *testing.T) {
			want := kustomize(t, test.dir)
			delete(want, "Namespace "+test.namespace) // Helm's users make it
			got := template(t, test.namespace, test.values)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-kustomize +helm)\n%s", diff)
			}
		})
	}
}

// The documentation's rules, by the documentation's kustomization and values: one text here
// and another there, of the same content.
func TestTheChartMakesTheObjectsOfKustomizeWithDevices(t *testing.T) {
	text, err := os.ReadFile("../../docs/inventory.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "## On your nodes\n")
	blocks := strings.Split(rest, "```yaml\n")
	values, _, _ := strings.Cut(blocks[1], "```")
	kustomization, _, _ := strings.Cut(blocks[2], "```")
	_, rules, _ := strings.Cut(values, "  enabled: true\n")
	want := kustomizeHere(t, map[string]string{"kustomization.yaml": kustomization, "devices.yaml": strings.ReplaceAll("\n"+rules, "\n  ", "\n")})
	delete(want, "Namespace cni-dra-driver")
	got := template(t, "cni-dra-driver", "agent: {enabled: false}\n"+values)
	for what, list := range map[string]objects{"kustomize": want, "helm": got} {
		data, ok := list["ConfigMap cni-dra-driver-devices"]["data"].(map[string]any)
		if !ok {
			t.Fatalf("%s makes no ConfigMap", what)
		}
		var content any
		if err := yaml.UnmarshalStrict([]byte(data["devices.yaml"].(string)), &content); err != nil {
			t.Fatal(err)
		}
		data["devices.yaml"] = content
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-kustomize +helm)\n%s", diff)
	}
	if len(want) != len(kustomize(t, "cni-dra-driver")) { // one ConfigMap more, the Namespace less
		t.Errorf("%d objects", len(want))
	}
}

// kustomizeHere does it in a directory of its own, for which deploy/ is ../deploy.
func kustomizeHere(t *testing.T, files map[string]string) objects {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	from, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	deploy, err := filepath.Rel(dir, from)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "../deploy", deploy)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	back, err := filepath.Rel(from, dir)
	if err != nil {
		t.Fatal(err)
	}
	return kustomize(t, back)
}

func TestTheChartsPodMonitorsAreTheExamples(t *testing.T) {
	got := template(t, "monitored", `{agent: {openMetrics: true}, dra: {enabled: true}, podMonitors: true}`)
	for name, path := range map[string]string{
		"PodMonitor devinfo-agent": "monitoring/podmonitor.yaml", "PodMonitor cni-dra-driver": "cni-dra-driver/examples/podmonitor.yaml",
	} {
		want := file(t, path)[name]
		want["metadata"].(map[string]any)["namespace"] = "monitored"
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s (-%s +helm)\n%s", name, path, diff)
		}
	}
}

func TestAPodMonitorNeedsMetricsThatAreOpen(t *testing.T) {
	got := template(t, "devinfo", `{podMonitors: true}`)
	if got["PodMonitor devinfo-agent"] != nil {
		t.Error("it would scrape 127.0.0.1 of another node")
	}
}

// agentArgs are the arguments of the agent for some values.
func agentArgs(t *testing.T, values string) string {
	t.Helper()
	text, err := yaml.Marshal(template(t, "devinfo", values)["DaemonSet devinfo-agent"])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestValuesReachTheAgent(t *testing.T) {
	for values, want := range map[string]string{
		`{agent: {inject: false}}`:                             "- --inject=false\n",
		`{agent: {whenMissing: refuse}}`:                       "- --when-missing=refuse\n",
		`{agent: {excludeNamespaces: [a, b]}}`:                 "- --inject-exclude-namespaces=a,b\n",
		`{agent: {allowDowngrade: true}}`:                      "- --allow-downgrade\n",
		`{agent: {extraArgs: ["-v=4"]}}`:                       "- -v=4\n",
		`{agent: {socketDirs: [/srv/sockets]}}`:                "path: /srv/sockets\n",
		`{agent: {nodeSelector: {net: fast}}}`:                 "net: fast\n",
		`{image: {registry: example.com/net, tag: v0.1.0}}`:    "image: example.com/net/devinfo-agent:v0.1.0\n",
		`{image: {pullPolicy: Always, pullSecrets: [secret]}}`: "imagePullPolicy: Always\n",
	} {
		if got := agentArgs(t, values); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in\n%s", values, want, got)
		}
	}
}

func TestWithoutTheDoctorItsMountsAreNotThere(t *testing.T) {
	if got := agentArgs(t, `{agent: {doctor: false}}`); strings.Contains(got, "net.d") || strings.Contains(got, "kubelet") {
		t.Error(got)
	}
}

func TestTheNodesSettingsAreAConfigMap(t *testing.T) {
	got := template(t, "devinfo", `{agent: {settings: {default.json: {logLevel: info}, node1.json: {cdiDevices: ["*"]}}}}`)
	want := map[string]any{"default.json": `{"logLevel":"info"}`, "node1.json": `{"cdiDevices":["*"]}`}
	if diff := cmp.Diff(want, got["ConfigMap devinfo-settings"]["data"]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestValuesThatMakeNoSenseAreRefused(t *testing.T) {
	for values, word := range map[string]string{
		`{agent: {whenMissing: maybe}}`:               "whenMissing",
		`{agent: {cniBinDir: opt/cni/bin}}`:           "cniBinDir",
		`{agent: {setings: {}}}`:                      "setings",
		`{agent: {settings: {"../node.json": {}}}}`:   "../node.json",
		`{dra: {allowClaimConfig: macvlan}}`:          "allowClaimConfig",
		`{dra: {devices: [{as: mine}]}}`:              "as",
		`{dra: {devices: [{as: shared, pfName: x}]}}`: "pfName",
		`{image: {pullPolicy: Sometimes}}`:            "pullPolicy",
		`{openshift: "yes"}`:                          "openshift",
		`{daemonset: {enabled: true}}`:                "daemonset",
		`{agent: {nodeSelector: {"gpu": true}}}`:      "nodeSelector",
		`{dra: {enabled: true, associatedNode: "1"}}`: "associatedNode",
	} {
		if _, err := render(t, "devinfo", values); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func TestHelmLintFindsNothing(t *testing.T) {
	for _, values := range []map[string]any{nil, {"dra": map[string]any{"enabled": true}, "podMonitors": true, "openshift": true}} {
		for _, message := range lint.RunAll(chart, values, "devinfo").Messages {
			if !strings.Contains(message.Error(), "icon is recommended") {
				t.Error(message)
			}
		}
	}
}
