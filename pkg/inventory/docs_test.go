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
	text, err := os.ReadFile("../../docs/inventory.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n"+table.String()+"\n") {
		t.Errorf("docs/inventory.md must have this table:\n%s", table.String())
	}
}

// The example of the documentation is a configuration that works.
func TestTheExampleOfTheDocumentationIsValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/inventory.md")
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

// The classes of the documentation: one takes what stands for networks of software, and
// the other a VF on its network, and neither fails of any device.
func TestTheClassesOfTheDocumentationSelectWhatTheySay(t *testing.T) {
	text, err := os.ReadFile("../../docs/inventory.md")
	if err != nil {
		t.Fatal(err)
	}
	attribute := func(value string) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{StringValue: &value}
	}
	type attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	devices := []attributes{
		nil,
		{inventory.AttrKind: attribute("vf"), "devinfo-cni.io/physicalNetwork": attribute("blue")},
		{inventory.AttrKind: attribute("vf"), "devinfo-cni.io/physicalNetwork": attribute("red")},
		{inventory.AttrKind: attribute("vf")},
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
		program := cel.GetCompiler(cel.Features{}).CompileCELExpression(class.Selectors[0].CEL.Expression, cel.Options{})
		if program.Error != nil {
			t.Fatal(program.Error)
		}
		got := ""
		for n, a := range devices {
			met, _, err := program.DeviceMatches(t.Context(), cel.Device{Driver: driver, Attributes: a})
			if err != nil {
				t.Error(err)
			}
			if met {
				got += fmt.Sprint(n)
			}
		}
		if got != want[n] {
			t.Errorf("class %d takes the devices %q", n, got)
		}
	}
}
