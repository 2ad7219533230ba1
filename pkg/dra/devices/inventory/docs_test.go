package inventory_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/devices/inventory"
)

// documented are the attributes of the documentation's table, each with the type of its values.
func documented(t *testing.T) map[resourceapi.QualifiedName]string {
	t.Helper()
	types := map[resourceapi.QualifiedName]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w./-]+)` \\| (string|int|bool) \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(page(t, "inventory.md"), -1) {
		types[resourceapi.QualifiedName(row[1])] = row[2]
	}
	return types
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/dra/" + name)
	must(t, err)
	return string(text)
}

func TestTheDocumentationHasTheAttributes(t *testing.T) {
	names := inventory.AttributeNames()
	slices.Sort(names)
	difftest.Same(t, "attributes in docs/dra/inventory.md", slices.Sorted(maps.Keys(documented(t))), names)
}

// The example of the documentation is a configuration that works.
func TestTheExampleOfTheDocumentationIsValid(t *testing.T) {
	_, example, found := strings.Cut(page(t, "inventory.md"), "## Rules\n\n```yaml\n")
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
	devices := []attributes{
		nil,
		{inventory.AttrKind: stringAttribute("vf"), "devinfo-cni.io/physicalNetwork": stringAttribute("blue")},
		{inventory.AttrKind: stringAttribute("vf"), "devinfo-cni.io/physicalNetwork": stringAttribute("red")},
		{inventory.AttrKind: stringAttribute("vf")},
	}
	want := []string{"0", "1"}
	blocks := strings.Split(page(t, "inventory.md"), "```yaml\nselectors:\n")[1:]
	if len(blocks) != len(want) {
		t.Fatalf("%d classes", len(blocks))
	}
	for n, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		var class struct {
			Selectors []struct{ CEL struct{ Expression string } }
		}
		must(t, yaml.Unmarshal([]byte("selectors:\n"+block), &class))
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
	block := func(name string) string {
		t.Helper()
		_, block, found := strings.Cut(page(t, "from-device-plugin.md"), "```yaml\n# "+name+"\n")
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

func TestEachWrongRuleIsNamed(t *testing.T) {
	_, err := inventory.ParseRules([]byte(`{"devices": [{"as": "shared"}, {"ifNames": ["a"], "as": "x"}]}`))
	if err == nil || !strings.Contains(err.Error(), "devices[0].select") || !strings.Contains(err.Error(), "devices[1].as") {
		t.Errorf("got %v", err)
	}
}

func TestNoRulesOfferNothing(t *testing.T) {
	for _, text := range []string{"", "{}", "devices: []", "devices: null"} {
		if list := pool(t, host(t, captured(t, "igb-sriov")), text); len(list) > 0 {
			t.Errorf("%q: %v", text, deviceNames(list))
		}
	}
}

// Helm refuses what the chart's schema does not know.
func TestTheChartTakesEachKeyOfARule(t *testing.T) {
	text, err := os.ReadFile("../../../../deploy/charts/devinfo/values.schema.json")
	must(t, err)
	type schema struct {
		Properties map[string]*schema
		Items      *schema
	}
	var all schema
	must(t, json.Unmarshal(text, &all))
	var keys []string
	for n, rule := 0, reflect.TypeFor[inventory.Rule](); n < rule.NumField(); n++ {
		keys = append(keys, rule.Field(n).Tag.Get("json"))
	}
	slices.Sort(keys)
	got := slices.Sorted(maps.Keys(all.Properties["dra"].Properties["devices"].Items.Properties))
	difftest.Same(t, "keys in the schema", got, keys)
}
