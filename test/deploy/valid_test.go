package deploy

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/test/difftest"
)

// unchecked returns kinds of other projects whose types are not available here. Their fields are not checked. A test
// in deploy/examples checks the networks.
func unchecked() []string {
	return []string{
		"security.openshift.io/v1 SecurityContextConstraints", "monitoring.coreos.com/v1 PodMonitor", "monitoring.coreos.com/v1 PrometheusRule",
		"k8s.cni.cncf.io/v1 NetworkAttachmentDefinition", "machineconfiguration.openshift.io/v1 MachineConfig", "kubevirt.io/v1 VirtualMachine",
		"sriovnetwork.openshift.io/v1 SriovNetworkNodePolicy", "sriovnetwork.openshift.io/v1 SriovNetwork",
	}
}

// valid decodes an object strictly, so that unknown fields are errors.
func valid(t *testing.T, from string, object map[string]any) {
	t.Helper()
	kind := object["apiVersion"].(string) + " " + object["kind"].(string)
	if slices.Contains(unchecked(), kind) {
		return
	}
	into, _, err := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer().Decode([]byte(encode(t, object)), nil, nil)
	if err != nil {
		t.Errorf("%s: %s: %v", from, kind, err)
	}
	if d, ok := into.(*appsv1.DaemonSet); ok && d.Spec.Template.Spec.NodeSelector["kubernetes.io/os"] != "linux" {
		t.Errorf("%s: DaemonSet %s would run on nodes of Windows: its nodeSelector lacks kubernetes.io/os: linux", from, d.Name)
	}
}

func TestManifestsAreValid(t *testing.T) {
	seen := 0
	for _, path := range append(difftest.Files(t, root), filepath.Join(root, "../test/hardware/job.yaml")) {
		if filepath.Ext(path) != ".yaml" || strings.HasPrefix(path, chart) {
			continue
		}
		kind := regexp.MustCompile(`(?m)^kind: (.*)$`).FindStringSubmatch(difftest.Read(t, path))
		if kind != nil && kind[1] != "Kustomization" && kind[1] != "Component" {
			seen++
			name, err := filepath.Rel(root, path)
			difftest.Must(t, err)
			for _, object := range file(t, name) {
				valid(t, name, object)
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d files", seen)
	}
	overlays, err := filepath.Glob(filepath.Join(root, "devinfo/overlays/*"))
	if err != nil || len(overlays) < 4 {
		t.Fatal(overlays, err)
	}
	for _, path := range append(overlays, filepath.Join(root, "devinfo"), filepath.Join(root, "cni-dra-driver")) {
		name, err := filepath.Rel(root, path)
		difftest.Must(t, err)
		for _, object := range kustomize(t, name) {
			valid(t, name, object)
		}
	}
	for _, object := range template(t, "devinfo", `{agent: {settings: {default.json: {}}}, dra: {enabled: true}, openshift: true, imagePullSecrets: [{name: a}], metrics: {dashboard: {enabled: true}}}`) {
		valid(t, "the chart", object)
	}
}

// pods returns the pod specs of all DaemonSets, those of Helm too.
func pods(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	list := map[string]corev1.PodSpec{}
	for _, dir := range []string{"devinfo", "devinfo/overlays/openshift", "devinfo/overlays/k3s", "devinfo/overlays/microk8s", "devinfo/overlays/metrics", "cni-dra-driver"} {
		for _, set := range kustomize(t, dir).daemonSets(t) {
			list[dir] = set.Spec.Template.Spec
		}
	}
	for name, set := range template(t, "devinfo", `{cniBinDir: /x, dra: {enabled: true}}`).daemonSets(t) {
		list["of Helm, "+name] = set.Spec.Template.Spec
	}
	return list
}

// daemonSets returns the DaemonSets by name.
func (o objects) daemonSets(t *testing.T) map[string]appsv1.DaemonSet {
	t.Helper()
	sets := map[string]appsv1.DaemonSet{}
	for id, object := range o {
		name, is := strings.CutPrefix(id, "DaemonSet ")
		if !is {
			continue
		}
		var set appsv1.DaemonSet
		difftest.Must(t, yaml.UnmarshalStrict([]byte(encode(t, object)), &set))
		sets[name] = set
	}
	return sets
}

// hostPaths returns the host's paths of a pod's volumes, by name.
func hostPaths(pod corev1.PodSpec) map[string]string {
	paths := map[string]string{}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			paths[v.Name] = v.HostPath.Path
		}
	}
	return paths
}

func TestVolumesAndMountsMatch(t *testing.T) {
	for name, pod := range pods(t) {
		mounted := map[string]bool{}
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			for _, m := range c.VolumeMounts {
				mounted[m.Name] = true
			}
		}
		for _, v := range pod.Volumes {
			if !mounted[v.Name] {
				t.Errorf("%s: volume %s is not mounted", name, v.Name)
			}
			delete(mounted, v.Name)
		}
		for v := range mounted {
			t.Errorf("%s: there is no volume %s", name, v)
		}
	}
}

// The paths of the journal and of the runtime must be the same in the agent as on the host.
func TestAgentMountsHostPathsAtSamePath(t *testing.T) {
	for name, pod := range pods(t) {
		if strings.HasSuffix(name, "cni-dra-driver") { // it also has the host's root at /host
			continue
		}
		host := hostPaths(pod)
		for _, m := range pod.Containers[0].VolumeMounts {
			if path, ok := host[m.Name]; ok && path != m.MountPath && m.MountPath != "/host/dev" { // for --device-root
				t.Errorf("%s: %s of the host is at %s", name, path, m.MountPath)
			}
		}
	}
}

func TestAgentHasFewRights(t *testing.T) {
	for name, pod := range pods(t) {
		if strings.HasSuffix(name, "cni-dra-driver") { // it runs any CNI plugin of the configurations
			continue
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.HostPID || pod.HostIPC {
			t.Errorf("%s: a token, or a namespace of the host that it does not need", name)
		}
		for _, path := range hostPaths(pod) {
			if path == "/" || strings.Contains(path, "kubelet") {
				t.Errorf("%s: mounts %s", name, path)
			}
		}
		for _, m := range pod.Containers[0].VolumeMounts {
			if slices.Contains([]string{"settings", "netns", "dev", "sockets-0", "sockets-1"}, m.Name) && !m.ReadOnly {
				t.Errorf("%s: may write to %s", name, m.MountPath)
			}
		}
		s := pod.Containers[0].SecurityContext
		if *s.Privileged || len(s.Capabilities.Add) != 1 || s.Capabilities.Add[0] != "SYS_ADMIN" {
			t.Errorf("%s: %v", name, s)
		}
	}
}

// A program does not start with an unknown flag.
func TestFlagsInManifestsExist(t *testing.T) {
	flag, list := regexp.MustCompile(`^--([a-z-]+)`), pods(t)
	for name, set := range template(t, "devinfo", `{agent: {uninstall: true}, dra: {enabled: true, uninstall: true}}`).daemonSets(t) {
		list["uninstalling, "+name] = set.Spec.Template.Spec
	}
	for name, pod := range list {
		t.Run(name, func(t *testing.T) {
			c := pod.Containers[0]
			program := regexp.MustCompile(`/([a-z-]+):`).FindStringSubmatch(c.Image)[1]
			source := difftest.Read(t, filepath.Join("../../cmd", program, "main.go"))
			for _, arg := range append(c.Command[min(1, len(c.Command)):], c.Args...) {
				found := flag.FindStringSubmatch(arg)
				if found == nil || !strings.Contains(source, `"`+found[1]+`"`) {
					t.Errorf("%s has no flag %s", program, arg)
				}
			}
		})
	}
}

// One agent that does not become ready must not block the roll-out on more than ten nodes.
func TestRollOutReplacesTenPercentOfAgentsAtATime(t *testing.T) {
	for _, made := range []objects{kustomize(t, "devinfo"), kustomize(t, "cni-dra-driver"), template(t, "devinfo", `{dra: {enabled: true}}`)} {
		for name, set := range made.daemonSets(t) {
			if roll := set.Spec.UpdateStrategy.RollingUpdate; roll == nil || roll.MaxUnavailable.String() != "10%" || roll.MaxSurge.String() != "0" {
				t.Errorf("%s: %v", name, roll)
			}
		}
	}
}
