// Package examples tests that the programs accept the examples.
package examples

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/test/difftest"
)

const networks = "k8s.v1.cni.cncf.io/networks"

// network is a NetworkAttachmentDefinition.
type network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Config string `json:"config"`
	} `json:"spec"`
}

// An example is a file with a comment, networks (or a class and a template of claims), and a pod or VM. The comment
// names the systems that it was run on.
type example struct {
	text     string
	networks []network
	rest     []string // YAML documents
}

func read(t *testing.T, path string) (e example) {
	t.Helper()
	e.text = difftest.Read(t, path)
	for _, document := range strings.Split(e.text, "\n---\n") {
		if !strings.Contains(document, "\nkind: NetworkAttachmentDefinition\n") {
			e.rest = append(e.rest, document)
			continue
		}
		var n network
		difftest.Must(t, yaml.UnmarshalStrict([]byte(document), &n))
		e.networks = append(e.networks, n)
	}
	return e
}

func each(t *testing.T, do func(*testing.T, example)) {
	paths, err := filepath.Glob("*.yaml")
	if err != nil || len(paths) < 11 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) { do(t, read(t, path)) })
	}
}

func TestPodUsesNetworkAndItsResource(t *testing.T) {
	each(t, func(t *testing.T, e example) {
		if len(e.networks) == 0 {
			for _, text := range []string{"- type: sriov # the driver adds deviceID\n                ipam:", "- name: blue # without it"} {
				difftest.Contains(t, e.text, difftest.Block(t, "../../docs/dra", "yaml", text)) // the guide shows them
			}
			usesClaim(t, e)
			return
		}
		if len(e.rest) != 1 {
			t.Fatalf("%d pods or VMs", len(e.rest))
		}
		if strings.Contains(e.rest[0], "kind: VirtualMachine") { // KubeVirt's types are not available here
			if !strings.Contains(e.rest[0], "networkName: "+e.networks[0].Name+"}") {
				t.Error("the VM does not name the network")
			}
			return
		}
		var pod corev1.Pod
		difftest.Must(t, yaml.UnmarshalStrict([]byte(e.rest[0]), &pod))
		n := e.networks[0]
		if pod.Annotations[networks] != n.Name {
			t.Errorf("the pod asks for network %q", pod.Annotations[networks])
		}
		resource := n.Annotations["k8s.v1.cni.cncf.io/resourceName"]
		if _, asked := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceName(resource)]; resource != "" && !asked {
			t.Errorf("the pod does not ask for %s", resource)
		}
	})
}

func TestPodUsesClaimForDPDK(t *testing.T) {
	usesClaim(t, read(t, "dpdk/claim.yaml"))
}

// usesClaim checks a class, a template of claims of this class, and a pod whose container waits for its claim.
func usesClaim(t *testing.T, e example) {
	t.Helper()
	var class resourceapi.DeviceClass
	var template resourceapi.ResourceClaimTemplate
	var pod corev1.Pod
	for n, to := range []any{&class, &template, &pod} {
		difftest.Must(t, yaml.UnmarshalStrict([]byte(e.rest[n]), to))
	}
	for _, wrong := range (cniconfig.Policy{Driver: "cni.dra.networking.x-k8s.io"}).CheckClass(&class.Spec).Wrong {
		t.Errorf("%s: %v", wrong.At, wrong)
	}
	if request := template.Spec.Spec.Devices.Requests[0].Exactly; request.DeviceClassName != class.Name {
		t.Errorf("the template asks for class %q", request.DeviceClassName)
	}
	claim := pod.Spec.ResourceClaims[0]
	if *claim.ResourceClaimTemplateName != template.Name || pod.Spec.Containers[0].Resources.Claims[0].Name != claim.Name {
		t.Errorf("the pod has %+v", pod.Spec)
	}
}

// Each example has a line "# Run:", and a test in pods or in QEMU runs it unchanged.
func TestEachExampleIsRunByATest(t *testing.T) {
	var tests strings.Builder
	for _, path := range []string{"e2e/examples_test.go", "e2e/realdevices_test.go", "vm/examples_test.go"} {
		tests.WriteString(difftest.Read(t, "../../test/"+path))
	}
	each(t, func(t *testing.T, e example) {
		head, _, _ := strings.Cut(e.text, "\napiVersion:")
		if !regexp.MustCompile(`(?m)^# Run: `).MatchString(head) {
			t.Error(`no line "# Run:"`)
		}
		name := strings.TrimSuffix(filepath.Base(t.Name()), ".yaml")
		if !regexp.MustCompile(`(\{"|name: "|examples/)` + name + `("[,}]|\.yaml")`).MatchString(tests.String()) {
			t.Error("no test runs it")
		}
	})
}
