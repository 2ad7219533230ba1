package inventory_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/inventory"
)

func TestTheDocumentationHasTheAttributes(t *testing.T) {
	var table strings.Builder
	table.WriteString("| attribute | type | of | meaning |\n|---|---|---|---|\n")
	for _, a := range inventory.Table() {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", a.Name, a.Type, a.Of, a.Means)
	}
	text, err := os.ReadFile("../../docs/dra/inventory.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n"+table.String()+"\n") {
		t.Errorf("docs/dra/inventory.md must have this table:\n%s", table.String())
	}
}

// The example of the documentation is a configuration that works.
func TestTheExampleOfTheDocumentationIsValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/dra/inventory.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(text), "## Rules\n\n```yaml\n")
	example, _, closed := strings.Cut(example, "```")
	if !found || !closed {
		t.Fatal("there is no example")
	}
	rules(t, example)
}

type attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

func stringAttribute(value string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: &value}
}

// The classes of the documentation: one takes what stands for networks of software, and
// the other a VF on its network, and neither fails of any device.
func TestTheClassesOfTheDocumentationSelectWhatTheySay(t *testing.T) {
	text, err := os.ReadFile("../../docs/dra/inventory.md")
	if err != nil {
		t.Fatal(err)
	}
	devices := []attributes{
		nil,
		{inventory.AttrKind: stringAttribute("vf"), "devinfo-cni.io/physicalNetwork": stringAttribute("blue")},
		{inventory.AttrKind: stringAttribute("vf"), "devinfo-cni.io/physicalNetwork": stringAttribute("red")},
		{inventory.AttrKind: stringAttribute("vf")},
	}
	want := []string{"0", "1"}
	blocks := strings.Split(string(text), "```yaml\nselectors:\n")[1:]
	if len(blocks) != len(want) {
		t.Fatalf("%d classes", len(blocks))
	}
	for n, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		var class struct {
			Selectors []struct{ CEL struct{ Expression string } }
		}
		if err := yaml.Unmarshal([]byte("selectors:\n"+block), &class); err != nil {
			t.Fatal(err)
		}
		if got := selected(t, class.Selectors[0].CEL.Expression, devices); got != want[n] {
			t.Errorf("class %d takes the devices %q", n, got)
		}
	}
}

// selected are the indices of the devices that an expression takes.
func selected(t *testing.T, expression string, devices []attributes) (got string) {
	t.Helper()
	program := cel.GetCompiler(cel.Features{}).CompileCELExpression(expression, cel.Options{})
	if program.Error != nil {
		t.Fatal(program.Error)
	}
	for n, a := range devices {
		met, _, err := program.DeviceMatches(t.Context(), cel.Device{Driver: driver, Attributes: a})
		if err != nil {
			t.Error(err)
		}
		if met {
			got += fmt.Sprint(n)
		}
	}
	return got
}

// The page's rules are valid, and its classes take what the rules offer: test/e2e runs them.
func TestTheClassesOfTheMigrationTakeWhatItsRulesOffer(t *testing.T) {
	text, err := os.ReadFile("../../docs/dra/from-device-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(name string) string {
		t.Helper()
		_, block, found := strings.Cut(string(text), "```yaml\n# "+name+"\n")
		block, _, closed := strings.Cut(block, "```\n")
		if !found || !closed {
			t.Fatalf("there is no %s", name)
		}
		return block
	}
	rules(t, block("devices.yaml"))
	devices := []attributes{
		nil,
		{inventory.AttrKind: stringAttribute("vf"), "devinfo-cni.io/physicalNetwork": stringAttribute("blue"), inventory.ResourceName: stringAttribute("example.com/blue")},
		{inventory.AttrKind: stringAttribute("vf"), "devinfo-cni.io/physicalNetwork": stringAttribute("red")},
		{inventory.AttrKind: stringAttribute("pf"), "devinfo-cni.io/role": stringAttribute("lan")},
	}
	for name, want := range map[string]string{"class.yaml": "1", "otherwise.yaml": "3", "multus.yaml": "1"} {
		first, _, _ := strings.Cut(block(name), "\n---\n")
		var class resourceapi.DeviceClass
		if err := yaml.UnmarshalStrict([]byte(first), &class); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := selected(t, class.Spec.Selectors[0].CEL.Expression, devices); got != want {
			t.Errorf("the class of %s takes the devices %q", name, got)
		}
	}
}
