// Package examples holds the examples to what the programs take.
package examples

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/test/undertest"
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

// An example is a file: a comment that says what was run, networks, and a pod or VM.
type example struct {
	text     string
	networks []network
	rest     []string // documents
}

func read(t *testing.T, path string) (e example) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	e.text = string(text)
	for _, document := range strings.Split(e.text, "\n---\n") {
		if !strings.Contains(document, "\nkind: NetworkAttachmentDefinition\n") {
			e.rest = append(e.rest, document)
			continue
		}
		var n network
		if err := yaml.UnmarshalStrict([]byte(document), &n); err != nil {
			t.Fatal(err)
		}
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

func TestDevinfoTakesTheNetworks(t *testing.T) {
	each(t, func(t *testing.T, e example) {
		if len(e.networks) == 0 {
			t.Error("no network")
		}
		for _, n := range e.networks {
			var list struct {
				CNIVersion string `json:"cniVersion"`
				Name       string
				Plugins    []map[string]any
			}
			if err := json.Unmarshal([]byte(n.Spec.Config), &list); err != nil {
				t.Fatal(err)
			}
			if list.Name != n.Name {
				t.Errorf("network %s is called %s in its configuration", n.Name, list.Name)
			}
			found := false
			for _, plugin := range list.Plugins {
				if plugin["type"] == "devinfo" {
					found = true
					accepted(t, list.CNIVersion, list.Name, plugin)
				}
			}
			if !found {
				t.Error("there is no devinfo in it")
			}
		}
	})
}

// accepted parses a plugin's configuration as libcni passes it.
func accepted(t *testing.T, version, network string, plugin map[string]any) {
	t.Helper()
	plugin["cniVersion"], plugin["name"] = version, network
	data, err := json.Marshal(plugin)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if warnings := c.Warnings(); len(warnings) > 0 {
		t.Error(warnings)
	}
}

func TestValidateFindsNothing(t *testing.T) {
	program := filepath.Join(t.TempDir(), "devinfoctl")
	undertest.Programs(t, program, "", "devinfo-cni.io/cmd/devinfoctl")
	each(t, func(t *testing.T, e example) {
		for _, n := range e.networks {
			text, err := yaml.Marshal(n)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(program, "validate", "--cni-path=/nowhere", "-")
			cmd.Stdin = strings.NewReader(string(text))
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "error:") || regexp.MustCompile(`(?m)^ +warning: \$`).Match(out) {
				t.Errorf("%v\n%s", err, out)
			}
		}
	})
}

func TestThePodUsesTheNetworkAndItsResource(t *testing.T) {
	each(t, func(t *testing.T, e example) {
		if len(e.rest) != 1 {
			t.Fatalf("%d pods or VMs", len(e.rest))
		}
		if strings.Contains(e.rest[0], "kind: VirtualMachine") { // KubeVirt's types are not at hand
			if !strings.Contains(e.rest[0], "networkName: "+e.networks[0].Name+"}") {
				t.Error("the VM does not name the network")
			}
			return
		}
		var pod corev1.Pod
		if err := yaml.UnmarshalStrict([]byte(e.rest[0]), &pod); err != nil {
			t.Fatal(err)
		}
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

// What was not run must not look as if it had been.
func TestEachSaysWhereItWasRun(t *testing.T) {
	each(t, func(t *testing.T, e example) {
		head, _, _ := strings.Cut(e.text, "\napiVersion:")
		if !regexp.MustCompile(`(?m)^# Run: `).MatchString(head) {
			t.Error(`no line "# Run:"`)
		}
	})
}

// Each is run as it stands, by the tests in pods or by those in QEMU.
func TestEachIsRun(t *testing.T) {
	var tests strings.Builder
	for _, path := range []string{"e2e/examples_test.go", "vm/examples_test.go", "vm/kubevirt_test.go"} {
		text, err := os.ReadFile("../../test/" + path)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	each(t, func(t *testing.T, _ example) {
		name := strings.TrimSuffix(filepath.Base(t.Name()), ".yaml")
		if !regexp.MustCompile(`(\{|name: )"` + name + `",`).MatchString(tests.String()) {
			t.Error("no test runs it")
		}
	})
}
