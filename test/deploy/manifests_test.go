package deploy

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// manifests are the files below deploy/ that the chart generates from values.
var manifests = []struct {
	namespace, values string
	files             map[string]string // file by path of the template
}{
	{"devinfo", `{metrics: {prometheusRule: {enabled: true}}}`, map[string]string{
		"agent/serviceaccount.yaml": "devinfo/base/serviceaccount.yaml", "agent/daemonset.yaml": "devinfo/base/daemonset.yaml",
		"monitoring/prometheusrule.yaml": "monitoring/prometheusrule.yaml",
	}},
	{"devinfo", `{metrics: {podMonitor: {enabled: true}}}`, map[string]string{"monitoring/podmonitors.yaml": "monitoring/podmonitor.yaml"}},
	{"devinfo", `{openshift: true}`, map[string]string{"agent/scc.yaml": "devinfo/overlays/openshift/scc.yaml"}},
	{"cni-dra-driver", `{openshift: true, agent: {enabled: false}, dra: {enabled: true}}`, map[string]string{"dra/scc.yaml": "cni-dra-driver/components/openshift/scc.yaml"}},
	{"cni-dra-driver", `{agent: {enabled: false}, dra: {enabled: true}, metrics: {podMonitor: {enabled: true}}}`, map[string]string{"monitoring/podmonitors.yaml": "cni-dra-driver/examples/podmonitor.yaml"}},
	{"cni-dra-driver", `{agent: {enabled: false}, dra: {enabled: true, admissionPolicy: true}}`, map[string]string{"dra/admissionpolicy.yaml": "cni-dra-driver/components/admission-policy/policy.yaml"}},
	{"cni-dra-driver", `{agent: {enabled: false}, dra: {enabled: true}}`, map[string]string{
		"dra/rbac.yaml":      "cni-dra-driver/rbac.yaml",
		"dra/admission.yaml": "cni-dra-driver/admission.yaml", "dra/deviceclass.yaml": "cni-dra-driver/deviceclass.yaml",
		"dra/daemonset.yaml": "cni-dra-driver/daemonset.yaml",
	}},
}

// ofHelm matches the labels of a Helm release.
var ofHelm = regexp.MustCompile(`(?m)^ *(helm\.sh/chart|app\.kubernetes\.io/(managed-by|instance|version|part-of)): .*\n`)

// Users of kustomize do not need Helm, because the repository contains the generated files.
func TestManifestsAreGeneratedFromChart(t *testing.T) {
	for _, m := range manifests {
		made, err := render(t, m.namespace, m.values)
		difftest.Must(t, err)
		for template, name := range m.files {
			text := strings.TrimPrefix(strings.TrimSpace(made["devinfo/templates/"+template]), "---\n")
			text = "# Made of deploy/charts/devinfo by \"make generate\".\n" + ofHelm.ReplaceAllString(text+"\n", "")
			goldentest.File(t, filepath.Join(root, name), text)
		}
	}
}

// The chart refuses settings that the agent would refuse, because its schema contains docs/schema/node.json.
func TestChartSchemaContainsNodeSchema(t *testing.T) {
	_, node, _ := strings.Cut(difftest.Read(t, "../../docs/schema/node.json"), "  \"type\": \"object\",\n")
	node, defs, _ := strings.Cut(node, "\n  },\n  \"$defs\": {")
	node = "\n    \"node\": {" + strings.ReplaceAll("\n  \"type\": \"object\",\n"+node+"\n  }", "\n", "\n    ") + "\n    }"
	defs, _, _ = strings.Cut(defs, "\n  }")
	path := filepath.Join(chart, "values.schema.json")
	has := difftest.Read(t, path)
	place := regexp.MustCompile(`(?s)\n    "node": \{.*?\n    \}`)
	text := place.ReplaceAllLiteralString(has, node)
	goldentest.File(t, path, text)
	if !place.MatchString(has) || !strings.Contains(node, `"stateDir"`) || !strings.Contains(has, defs) {
		t.Errorf("no settings in the schema of the chart, or not the same $defs, or none in\n%s%s", node, defs)
	}
}

// A directory that the settings name must be mounted. Otherwise the agent would see an empty journal, and replace or
// remove any plugin.
func TestDirectoriesInSettingsAreMounted(t *testing.T) {
	const settings = `{
		default.json: {stateDir: /srv/journal, deviceInfoDir: /srv/info/, cdiDir: /var/run/cdi/more, socketDirs: [/srv/sockets, /var/run/vhost-user], logLevel: info},
		node1.json: {stateDir: /srv/journal, devicePluginDir: /srv/dp, cdiDir: /run/cdi, allowedDevices: ["*"]}}`
	made := template(t, "devinfo", `{agent: {settings: `+settings+`}, dra: {enabled: true}}`)
	for _, test := range []struct {
		set       string
		container func(corev1.PodSpec) corev1.Container
		want      map[string]bool // whether it is writable
	}{
		{"devinfo-agent", first, map[string]bool{"/srv/journal": true, "/srv/info": true, "/srv/dp": true, "/run/cdi": true, "/srv/sockets": false}},
		{"cni-dra-driver", first, map[string]bool{"/srv/info": true, "/srv/dp": true, "/run/cdi": true, "/srv/sockets": true}},
		{"cni-dra-driver", firstInit, map[string]bool{"/srv/journal": false}},
	} {
		pod := made.daemonSets(t)[test.set].Spec.Template.Spec
		host, got := hostPaths(pod), map[string]bool{}
		for _, m := range test.container(pod).VolumeMounts {
			if strings.HasPrefix(m.Name, "settings-") {
				got[m.MountPath] = !m.ReadOnly
				if host[m.Name] != m.MountPath {
					t.Errorf("%s: %s of the host is at %s", test.set, host[m.Name], m.MountPath)
				}
			}
		}
		difftest.Same(t, test.set, got, test.want)
	}
}

func first(pod corev1.PodSpec) corev1.Container     { return pod.Containers[0] }
func firstInit(pod corev1.PodSpec) corev1.Container { return pod.InitContainers[0] }

// The kubelet would create an empty directory, while the runtime's plugins are in another one.
func TestPluginDirectoryMustExist(t *testing.T) {
	for name, pod := range pods(t) {
		dir, mounted := env(first(pod))["CNI_BIN_DIR"], ""
		for _, v := range pod.Volumes {
			if v.Name == "cni-bin" && *v.HostPath.Type == corev1.HostPathDirectory {
				mounted = v.HostPath.Path
			}
		}
		if mounted != dir || strings.HasPrefix(name, "of Helm") && dir != "/x" {
			t.Errorf("%s: $CNI_BIN_DIR is %s, and the directory %q is mounted", name, dir, mounted)
		}
	}
}

// Policies and quotas of a namespace may refuse a pod if one of its containers has many rights or requests no
// resources.
func TestEachContainerHasFewRightsAndRequestsResources(t *testing.T) {
	list := pods(t)
	var test corev1.Pod
	difftest.Must(t, yaml.UnmarshalStrict([]byte(encode(t, template(t, "devinfo", "")["Pod devinfo-test"])), &test))
	list["helm test"] = test.Spec
	for name, pod := range list {
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			if r := c.Resources.Requests; r.Cpu().IsZero() || r.Memory().IsZero() {
				t.Errorf("%s: container %s requests %v", name, c.Name, r)
			}
			s := c.SecurityContext
			if s.Privileged != nil && *s.Privileged { // cni-dra-driver runs any CNI plugin of the configurations
				continue
			}
			// Otherwise the agent could create a directory that is not mounted, and use it as the node's.
			if s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
				t.Errorf("%s: container %s can write to its root", name, c.Name)
			}
			if s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.SeccompProfile == nil ||
				s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
				t.Errorf("%s: container %s may do more than it needs: %v", name, c.Name, s)
			}
		}
	}
	if list["helm test"].Containers == nil {
		t.Error("no pod of helm test")
	}
}

// The API server drops an empty value and adds a missing scope, so each kubectl apply would report a change.
func TestSecondApplyChangesNothing(t *testing.T) {
	for _, dir := range []string{"devinfo", "cni-dra-driver"} {
		for name, object := range kustomize(t, dir) {
			if s := encode(t, object); strings.Contains(s, `value: ""`) || strings.Contains(s, "resourceRules:") && !strings.Contains(s, "scope:") {
				t.Errorf("%s: %s", name, s)
			}
		}
	}
}

// A cluster may have a different default level for each of enforce, warn and audit.
func TestNamespacesAllowPodsWithoutWarnings(t *testing.T) {
	for _, dir := range []string{"devinfo", "cni-dra-driver"} {
		labels := kustomize(t, dir)["Namespace "+dir]["metadata"].(map[string]any)["labels"].(map[string]any)
		for _, mode := range []string{"enforce", "warn", "audit"} {
			if labels["pod-security.kubernetes.io/"+mode] != "privileged" {
				t.Errorf("%s: %s is %v in the namespace", dir, mode, labels)
			}
		}
	}
}
