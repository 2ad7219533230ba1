package deploy

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	v2util "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/kube/fake"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	memory "helm.sh/helm/v4/pkg/storage/driver"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func TestChartAndKustomizeCreateSameObjects(t *testing.T) {
	for dir, values := range map[string]string{
		"devinfo":                                    ``,
		"devinfo/overlays/openshift":                 `{openshift: true, cniBinDir: /var/lib/cni/bin}`,
		"devinfo/overlays/microk8s":                  `{cniBinDir: /var/snap/microk8s/current/opt/cni/bin}`,
		"devinfo/overlays/k3s":                       `{cniBinDir: /var/lib/rancher/k3s/data/cni}`,
		"devinfo/overlays/kubespray":                 `{agent: {dacOverride: true}}`,
		"devinfo/overlays/metrics":                   `{metrics: {enabled: true}}`,
		"devinfo/components/doctor":                  `{agent: {doctor: true}}`,
		"devinfo/components/dac-override":            `{agent: {dacOverride: true}}`,
		"devinfo/components/uninstall":               `{agent: {uninstall: true}}`,
		"cni-dra-driver":                             `{agent: {enabled: false}, dra: {enabled: true}}`,
		"cni-dra-driver/components/metrics":          `{metrics: {enabled: true}, agent: {enabled: false}, dra: {enabled: true}}`,
		"cni-dra-driver/components/uninstall":        `{agent: {enabled: false}, dra: {enabled: true, uninstall: true}}`,
		"cni-dra-driver/components/admission-policy": `{agent: {enabled: false}, dra: {enabled: true, admissionPolicy: true}}`,
		"cni-dra-driver/components/openshift":        `{openshift: true, agent: {enabled: false}, dra: {enabled: true}}`,
	} {
		t.Run(dir, func(t *testing.T) {
			base, _, _ := strings.Cut(dir, "/")
			kustomization := "resources: [../deploy/" + dir + "]\n"
			if strings.Contains(dir, "/components/") {
				kustomization = "resources: [../deploy/" + base + "]\ncomponents: [../deploy/" + dir + "]\n"
			}
			want := kustomizeHere(t, map[string]string{"kustomization.yaml": kustomization})
			delete(want, "Namespace "+base) // Helm's users create it
			difftest.Same(t, "objects of Helm, beside those of kustomize", plain(template(t, base, values)), want, unordered)
		})
	}
}

// The component's comment shows the patch that does what dra.allowClaimConfig does.
func TestAdmissionPolicyAllowsPluginsOfValues(t *testing.T) {
	const component = "cni-dra-driver/components/admission-policy"
	_, patch, _ := strings.Cut(difftest.Read(t, filepath.Join(root, component, "kustomization.yaml")), "#   patches:\n")
	patch, _, _ = strings.Cut("patches:\n"+strings.ReplaceAll(patch, "#   ", ""), "apiVersion")
	want := kustomizeHere(t, map[string]string{"kustomization.yaml": "resources: [../deploy/cni-dra-driver]\ncomponents: [../deploy/" + component + "]\n" + patch})
	got := plain(template(t, "cni-dra-driver", `{dra: {enabled: true, admissionPolicy: true, allowClaimConfig: [macvlan, host-local]}}`))
	const policy = "ValidatingAdmissionPolicy cni-dra-driver-parameters"
	difftest.Same(t, policy, got[policy], want[policy])
}

// plain removes the labels of a Helm release, and the pod of "helm test".
func plain(list objects) objects {
	delete(list, "Pod devinfo-test")
	for _, o := range list {
		labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any)
		for key := range labels {
			if ofHelm.MatchString(key + ": x\n") {
				delete(labels, key)
			}
		}
	}
	return list
}

// unordered compares lists as sets, because kustomize puts the elements of a patch first.
var unordered = cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) })

// The documentation shows the rules in a kustomization and in chart values, with the same content.
func TestChartAndKustomizeCreateSameObjectsWithDevices(t *testing.T) {
	values, kustomization := devicesKustomization(t)
	_, rules, _ := strings.Cut(values, "  enabled: true\n")
	kustomization += "\ngeneratorOptions: {disableNameSuffixHash: true}\n"
	want := kustomizeHere(t, map[string]string{"kustomization.yaml": kustomization, "devices.yaml": strings.ReplaceAll("\n"+rules, "\n  ", "\n")})
	delete(want, "Namespace cni-dra-driver")
	got := plain(template(t, "cni-dra-driver", "agent: {enabled: false}\n"+values))
	for what, list := range map[string]objects{"kustomize": want, "helm": got} {
		data, ok := list["ConfigMap cni-dra-driver-devices"]["data"].(map[string]any)
		if !ok {
			t.Fatalf("%s makes no ConfigMap", what)
		}
		var content any
		difftest.Must(t, yaml.UnmarshalStrict([]byte(data["devices.yaml"].(string)), &content))
		data["devices.yaml"] = content
	}
	delete(got["ConfigMap cni-dra-driver-devices"]["metadata"].(map[string]any), "labels")
	pods := got["DaemonSet cni-dra-driver"]["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any)
	delete(pods, "annotations") // Helm adds the rules' checksum, and kustomize a suffix to the ConfigMap
	difftest.Same(t, "objects of Helm, beside those of kustomize", got, want, unordered)
	if len(want) != len(kustomize(t, "cni-dra-driver")) { // Helm adds a ConfigMap, but not the Namespace
		t.Errorf("%d objects", len(want))
	}
}

// devicesKustomization returns the documented values and kustomization for the node's own devices.
func devicesKustomization(t *testing.T) (values, kustomization string) {
	t.Helper()
	return difftest.Block(t, docs, "yaml", "dra:\n  enabled: true\n  devices:\n"), difftest.Block(t, docs, "yaml", "name: cni-dra-driver-devices\n")
}

// The driver reads the rules when it starts, so a change must replace its pods.
func TestChangedRuleReplacesDriverPods(t *testing.T) {
	_, kustomization := devicesKustomization(t)
	rules := func(rack string) string {
		return "devices: [{nodes: {matchLabels: {rack: " + rack + "}}, sharing: shared, ifNames: [eth0]}]"
	}
	mark := func(list objects) string {
		set := list.daemonSets(t)["cni-dra-driver"]
		mark := set.Spec.Template.Annotations["checksum/devices"] // of Helm
		for _, v := range set.Spec.Template.Spec.Volumes {
			if v.Name == "devices" {
				mark += v.ConfigMap.Name // which kustomize gives a suffix
				if list["ConfigMap "+v.ConfigMap.Name] == nil {
					t.Errorf("there is no ConfigMap %s", v.ConfigMap.Name)
				}
			}
		}
		return mark
	}
	for tool, made := range map[string]func(rack string) objects{
		"helm": func(rack string) objects {
			return template(t, "devinfo", "dra:\n  enabled: true\n  podAnnotations: {a: b}\n  "+rules(rack))
		},
		"kustomize": func(rack string) objects {
			return kustomizeHere(t, map[string]string{"kustomization.yaml": kustomization, "devices.yaml": rules(rack)})
		},
	} {
		a, again, b := mark(made("a")), mark(made("a")), mark(made("b"))
		if a != again || a == b {
			t.Errorf("%s: the pods have %q and %q with the same rules, and %q with changed ones", tool, a, again, b)
		}
	}
	agent := func(level string) map[string]any {
		return template(t, "devinfo", `{agent: {settings: {default.json: {logLevel: `+level+`}}}}`)["DaemonSet devinfo-agent"]
	}
	difftest.Same(t, "devinfo-agent, which reads changed settings again by itself", agent("info"), agent("warn"))
}

// kustomizeHere runs kustomize in a directory of its own. deploy/ is ../deploy there.
func kustomizeHere(t *testing.T, files map[string]string) objects {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	difftest.Must(t, err)
	from, err := filepath.Abs(root)
	difftest.Must(t, err)
	deploy, err := filepath.Rel(dir, from)
	difftest.Must(t, err)
	for name, text := range files {
		difftest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "../deploy", deploy)), 0o600))
	}
	back, err := filepath.Rel(from, dir)
	difftest.Must(t, err)
	return kustomize(t, back)
}

// Prometheus takes a target's job from the pod's label that jobLabel names, or else from the PodMonitor's name.
func TestAlertsMatchAgentsWithAnyReleaseName(t *testing.T) {
	for _, values := range []string{``, `fullnameOverride: full, `} {
		found, made := 0, template(t, "devinfo", `{`+values+`dra: {enabled: true}, metrics: {podMonitor: {enabled: true}}}`)
		for _, set := range made.daemonSets(t) {
			label, _ := made["PodMonitor "+set.Name]["spec"].(map[string]any)["jobLabel"].(string)
			job := set.Spec.Template.Labels[label]
			if label == "" {
				job = "devinfo/" + set.Name
			}
			up := fmt.Sprintf(`up{instance="a",job=%q} 0x120`, job)
			for _, alert := range []string{"DevinfoAgentGone", "DevinfoDRADriverGone"} {
				found += len(fires(t, alert, up, time.Hour))
			}
		}
		if found != 2 {
			t.Errorf("{%s}: %d alerts", values, found)
		}
	}
}

func TestNamesCanBeOverridden(t *testing.T) {
	for values, want := range map[string][]string{
		`{dra: {enabled: true}, nameOverride: net}`:                         {"DaemonSet net-agent", "DaemonSet net-cni-dra-driver", "ClusterRole net-cni-dra-driver", "ServiceAccount net-agent"},
		`{dra: {enabled: true}, nameOverride: net, fullnameOverride: full}`: {"DaemonSet full-agent", "DaemonSet full-cni-dra-driver"},
	} {
		got := template(t, "ns", values)
		for _, name := range want {
			if got[name] == nil {
				t.Errorf("%s: no %s", values, name)
			}
		}
		for name := range got {
			if strings.HasSuffix(name, "devinfo-agent") || strings.HasSuffix(name, " cni-dra-driver") {
				t.Errorf("%s: %s", values, name)
			}
		}
	}
}

func TestClaimsNeedTheirAPI(t *testing.T) {
	old := *common.DefaultCapabilities
	old.APIVersions = common.VersionSet{"v1", "apps/v1"}
	_, err := renderOn(t, &old, "devinfo", `{dra: {enabled: true}}`)
	difftest.Says(t, err, "this cluster has no resource.k8s.io/v1")
	_, err = renderOn(t, &old, "devinfo", ``)
	difftest.Must(t, err)
}

// extraArgs must not repeat a flag that the chart sets, because the chart's mounts, ports and probes would not match.
func TestExtraArgsMustNotRepeatFlagsOfChart(t *testing.T) {
	const all = `{kubeletRootDir: /data/kubelet, agent: {inject: false, uninstall: true, missingInfo: reject, namespaces: [a], excludeNamespaces: [b]%s},
		dra: {enabled: true, uninstall: true, devices: [{sharing: shared, ifNames: [a]}], allowClaimConfig: [macvlan], numaNode: list%s}}`
	helpers := difftest.Read(t, filepath.Join(chart, "templates/_helpers.tpl"))
	listed, set := map[string]bool{}, map[string]bool{}
	for _, found := range regexp.MustCompile(`"(--[a-z-]+)" "`).FindAllStringSubmatch(helpers, -1) {
		listed[found[1]] = true
	}
	made := template(t, "devinfo", fmt.Sprintf(all, "", ""))
	for program, name := range map[string]string{"agent": "devinfo-agent", "dra": "cni-dra-driver"} {
		c := first(made.daemonSets(t)[name].Spec.Template.Spec)
		for _, arg := range append(c.Command[min(1, len(c.Command)):], c.Args...) {
			flag, _, _ := strings.Cut(arg, "=")
			set[flag] = true
			for _, extra := range []string{flag, flag + "=x"} {
				more := map[string]string{program: `, extraArgs: ["` + extra + `"]`}
				_, err := render(t, "devinfo", fmt.Sprintf(all, more["agent"], more["dra"]))
				difftest.Says(t, err, program+".extraArgs: "+extra+": ")
			}
		}
	}
	difftest.Same(t, "arguments in the list, beside those that the chart sets", listed, set)
}

// place matches a place that the library gets wrong, and places in templates, which change with them.
var place = regexp.MustCompile(`at '[^']*': (invalid propertyName)|execution error at \([^)]*\): `)

// Each line of the files has values. The lines below it are the error, or what the values add to the manifests and remove
// from them: to those without values, or to those with both agents. -update records them.
func TestValuesChangeManifests(t *testing.T) {
	lines := func(values string) (list []string) {
		texts, err := render(t, "devinfo", values)
		if err != nil {
			_, why, _ := strings.Cut(err.Error(), " in the following chart(s):\ndevinfo:\n") // of the schema
			why = place.ReplaceAllString(cmp.Or(why, err.Error()), "$1")
			return slices.Sorted(strings.SplitSeq("refused: "+strings.TrimSpace(why), "\n"))
		}
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			list = append(list, strings.Split(texts[name], "\n")...)
		}
		return list
	}
	for file, standard := range map[string][]string{"testdata/values.txt": lines(""), "testdata/values-both.txt": lines(`{dra: {enabled: true}}`)} {
		goldentest.Lines(t, file, func(values string) (changes []string) {
			left, made := map[string]int{}, lines(values)
			refused := slices.ContainsFunc(made, func(line string) bool { return strings.HasPrefix(line, "refused: ") })
			for _, line := range standard {
				left[line]++
			}
			for _, line := range made {
				if left[line]--; left[line] < 0 || refused {
					changes = append(changes, "+ "+line)
				}
			}
			for _, line := range standard {
				if left[line] > 0 && !refused {
					left[line]--
					changes = append(changes, "- "+line)
				}
			}
			return changes
		})
	}
	made := template(t, "devinfo", `{metrics: {dashboard: {enabled: true, labels: {grafana_dashboard: null}}}}`)
	if made["ConfigMap devinfo-dashboard"] == nil {
		t.Error("without its label there is no dashboard")
	}
}

// The chart refuses names that no namespace can have, as the flag does.
func TestNamespacesFollowTheRuleOfTheFlag(t *testing.T) {
	rule := regexp.MustCompile("namespaces = regexp.MustCompile\\(`(.*)`\\)").FindStringSubmatch(difftest.Read(t, "../../cmd/devinfo-agent/main.go"))
	if rule == nil {
		t.Fatal("the flag has no such rule")
	}
	difftest.Contains(t, strings.ReplaceAll(difftest.Read(t, filepath.Join(chart, "values.schema.json")), `\\`, `\`), `"pattern": "`+rule[1]+`"`)
}

// A parent chart enables this chart with its own value "enabled", which Helm passes on.
func TestChartCanBeConditionalDependency(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		of, err := loader.Load(chart)
		difftest.Must(t, err)
		umbrella := &v2.Chart{Metadata: &v2.Metadata{
			APIVersion: "v2", Name: "net", Version: "1.0.0",
			Dependencies: []*v2.Dependency{{Name: "devinfo", Version: "0.x", Condition: "devinfo.enabled"}},
		}}
		umbrella.SetDependencies(of)
		given := map[string]any{"devinfo": map[string]any{"enabled": enabled, "image": map[string]any{"registry": "r"}}}
		difftest.Must(t, v2util.ProcessDependencies(umbrella, given))
		all, err := util.ToRenderValues(umbrella, given, common.ReleaseOptions{Name: "net", Namespace: "x", IsInstall: true}, nil)
		if err != nil {
			t.Errorf("enabled: %t: %v", enabled, err)
			continue
		}
		made, err := engine.Render(umbrella, all)
		if err != nil || (made["net/charts/devinfo/templates/agent/daemonset.yaml"] != "") != enabled {
			t.Errorf("enabled: %t: %d files, %v", enabled, len(made), err)
		}
	}
}

func TestHelmLintReportsNoProblem(t *testing.T) {
	for _, values := range []map[string]any{{}, {"dra": map[string]any{"enabled": true}, "metrics": map[string]any{"podMonitor": map[string]any{"enabled": true}}, "openshift": true}} {
		values["image"] = map[string]any{"registry": "r"}
		for _, message := range lint.RunAll(chart, values, "devinfo").Messages {
			if !strings.Contains(message.Error(), "icon is recommended") {
				t.Error(message)
			}
		}
	}
}

func TestDocumentedValuesExist(t *testing.T) {
	seen := 0
	for _, path := range difftest.Files(t, docs, "../../README.md", chart+"/README.md", chart+"/templates/_helpers.tpl", chart+"/templates/NOTES.txt") {
		for _, set := range regexp.MustCompile(`--set[ =]([^ `+"`"+`"\n]+)`).FindAllStringSubmatch(difftest.Read(t, path), -1) {
			seen++
			if _, err := render(t, "devinfo", encode(t, assigned(t, set[1]))); err != nil && strings.Contains(err.Error(), "additional properties") {
				t.Errorf("%s: --set %s: %v", path, set[1], err)
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d times --set", seen)
	}
}

// assigned returns values as --set gives them.
func assigned(t *testing.T, text string) map[string]any {
	t.Helper()
	values, err := strvals.Parse(text)
	difftest.Must(t, err)
	return values
}

func TestDocumentedKustomizationCanBeApplied(t *testing.T) {
	made := kustomizeHere(t, map[string]string{"kustomization.yaml": difftest.Block(t, docs, "yaml", "newName: registry.example.com/net/devinfo-agent")})
	image := first(made.daemonSets(t)["devinfo-agent"].Spec.Template.Spec).Image
	difftest.Same(t, "image", image, "registry.example.com/net/devinfo-agent:v0.1.0")
}

// Each upgrade in the pages keeps what was set before, such as OpenShift's values, and takes the new chart's defaults. Helm
// runs without a cluster.
func TestDocumentedUpgradesKeepValues(t *testing.T) {
	const before = "image.registry=r,image.tag=v0.1.0,openshift=true,cniBinDir=/var/lib/cni/bin,dra.enabled=true,agent.nodeSelector.devinfo=try"
	load := func(kubelet string) *v2.Chart {
		c, err := loader.Load(chart)
		difftest.Must(t, err)
		c.Values["kubeletRootDir"] = kubelet
		return c
	}
	text := strings.ReplaceAll(strings.Join(difftest.Blocks(t, docs, "sh"), ""), "\\\n", "")
	upgrades := regexp.MustCompile(`helm upgrade devinfo deploy/charts/devinfo ([^#\n]+)`).FindAllStringSubmatch(text, -1)
	kubernetes := common.DefaultCapabilities.Copy()
	kubernetes.KubeVersion = common.KubeVersion{Version: "v1.36.0", Major: "1", Minor: "36"}
	for _, found := range upgrades {
		cluster := &action.Configuration{
			Releases: storage.Init(memory.NewMemory()), Capabilities: kubernetes,
			KubeClient: &fake.PrintingKubeClient{Out: io.Discard},
		}
		var set []string
		for _, flag := range regexp.MustCompile(`--set (\S+)`).FindAllStringSubmatch(found[1], -1) {
			set = append(set, flag[1])
		}
		install, upgrade := action.NewInstall(cluster), action.NewUpgrade(cluster)
		install.ReleaseName, install.Namespace, install.WaitStrategy = "devinfo", "devinfo", kube.HookOnlyStrategy
		upgrade.WaitStrategy = kube.HookOnlyStrategy
		upgrade.ReuseValues = strings.Contains(found[1], "--reuse-values")
		upgrade.ResetThenReuseValues = strings.Contains(found[1], "--reset-then-reuse-values")
		_, err := install.Run(load("/old"), assigned(t, before))
		difftest.Must(t, err)
		_, err = upgrade.Run("devinfo", load("/new"), assigned(t, strings.Join(set, ",")))
		difftest.Must(t, err)
		last, err := cluster.Releases.Last("devinfo")
		difftest.Must(t, err)
		got := objects{}
		got.add(t, last.(*release.Release).Manifest)
		wanted := strings.Join(append([]string{before, "kubeletRootDir=/new"}, set...), ",")
		for _, removed := range regexp.MustCompile(`,([^,]+)=null`).FindAllStringSubmatch(wanted, -1) {
			wanted = regexp.MustCompile(","+regexp.QuoteMeta(removed[1])+"=[^,]*").ReplaceAllString(wanted, "")
		}
		want := template(t, "devinfo", encode(t, assigned(t, wanted)))
		delete(want, "Pod devinfo-test") // a hook
		difftest.Same(t, "objects after helm upgrade "+found[1], got, want)
	}
	if len(upgrades) < 5 {
		t.Errorf("%d upgrades", len(upgrades))
	}
}
