package inventory_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/test/difftest"
)

// documented returns the attributes in the table of the documentation, with the types of their values.
func documented(t *testing.T) map[resourceapi.QualifiedName]string {
	t.Helper()
	types := map[resourceapi.QualifiedName]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w./-]+)` \\| (string|int|bool) \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(difftest.Read(t, docs+"rules.md"), -1) {
		types[resourceapi.QualifiedName(row[1])] = row[2]
	}
	return types
}

const docs = "../../../../docs/dra/"

func TestDocumentationListsAttributes(t *testing.T) {
	names := inventory.AttributeNames()
	slices.Sort(names)
	difftest.Same(t, "attributes in docs/dra/rules.md", slices.Sorted(maps.Keys(documented(t))), names)
}

func TestExampleInDocumentationIsValid(t *testing.T) {
	rules(t, difftest.Block(t, docs+"rules.md", "## Rules\n", "yaml"))
}

// One class selects the device for networks without hardware, the other a VF on its network.
func TestClassesInDocumentationSelectDevices(t *testing.T) {
	want := []string{"0", "1"}
	blocks := strings.Split(difftest.Read(t, docs+"rules.md"), "```yaml\nselectors:\n")[1:]
	if len(blocks) != len(want) {
		t.Fatalf("%d classes", len(blocks))
	}
	for n, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		var class struct {
			Selectors []struct{ CEL struct{ Expression string } }
		}
		must(t, yaml.Unmarshal([]byte("selectors:\n"+block), &class))
		difftest.Same(t, fmt.Sprintf("devices of class %d", n), selected(t, class.Selectors[0].CEL.Expression), want[n])
	}
}

// selected returns the indexes of the devices that an expression selects. It must not fail on any of them.
func selected(t *testing.T, expression string) (got string) {
	t.Helper()
	devices := []map[resourceapi.QualifiedName]string{
		nil,
		{inventory.AttrKind: "vf", "devinfo-cni.io/physicalNetwork": "blue", inventory.ResourceName: "example.com/blue"},
		{inventory.AttrKind: "vf", "devinfo-cni.io/physicalNetwork": "red"},
		{inventory.AttrKind: "vf"},
		{inventory.AttrKind: "pf", "devinfo-cni.io/role": "lan"},
	}
	program := cel.GetCompiler(cel.Features{}).CompileCELExpression(expression, cel.Options{})
	if program.Error != nil {
		t.Fatal(program.Error)
	}
	for n, d := range devices {
		attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
		for name, value := range d {
			attributes[name] = resourceapi.DeviceAttribute{StringValue: &value}
		}
		met, _, err := program.DeviceMatches(t.Context(), cel.Device{Driver: driver, Attributes: attributes})
		if err != nil {
			t.Error(err)
		}
		if met {
			got += fmt.Sprint(n)
		}
	}
	return got
}

// The page's rules are valid, and its classes select the devices that the rules offer. test/e2e runs them.
func TestClassesOfMigrationSelectOfferedDevices(t *testing.T) {
	block := func(name string) string {
		t.Helper()
		return difftest.Block(t, docs+"from-device-plugin.md", "", "yaml\n# "+name) // the block begins with its name
	}
	rules(t, block("devices.yaml"))
	for name, want := range map[string]string{"class.yaml": "1", "otherwise.yaml": "4", "multus.yaml": "1"} {
		first, _, _ := strings.Cut(block(name), "\n---\n")
		var class resourceapi.DeviceClass
		must(t, yaml.UnmarshalStrict([]byte(first), &class))
		difftest.Same(t, "devices of "+name, selected(t, class.Spec.Selectors[0].CEL.Expression), want)
	}
}

func TestErrorNamesEachWrongRule(t *testing.T) {
	_, err := inventory.ParseRules([]byte(`{"devices": [{"sharing": "shared"}, {"ifNames": ["a"], "sharing": "x"}]}`))
	difftest.Says(t, err, "devices[0].select", "devices[1].sharing")
	for nodes, want := range map[string]string{
		`{}`:                       "devices[0].nodes: the selector selects all nodes",
		`rack`:                     "devices[0].nodes",
		`{matchLabel: {rack: a}}`:  "devices[0].nodes.matchLabel: the key is not known; did you mean matchLabels?",
		`{matchLabels: {rack: 1}}`: "devices[0].nodes.matchLabels",
		`{matchExpressions: [{key: rack, operator: Is}]}`: "devices[0].nodes: ",
	} {
		_, err := inventory.ParseRules([]byte("devices: [{ifNames: [a], sharing: shared, nodes: " + nodes + "}]"))
		difftest.Says(t, err, want)
	}
}

func TestConfigurationWithoutRulesOffersNoDevices(t *testing.T) {
	for _, text := range []string{"", "{}", "devices: []", "devices: null"} {
		if list := pool(t, host(t, capturetest.Text(t, "igb-sriov")), text); len(list) > 0 {
			t.Errorf("%q: %v", text, deviceNames(list))
		}
	}
}

// Helm refuses keys that are missing in the chart's schema.
func TestChartAcceptsEachKeyOfRule(t *testing.T) {
	type schema struct {
		Properties map[string]*schema
		Items      *schema
	}
	var all schema
	must(t, json.Unmarshal([]byte(difftest.Read(t, "../../../../deploy/charts/devinfo/values.schema.json")), &all))
	var keys []string
	for n, rule := 0, reflect.TypeFor[inventory.Rule](); n < rule.NumField(); n++ {
		keys = append(keys, rule.Field(n).Tag.Get("json"))
	}
	slices.Sort(keys)
	got := slices.Sorted(maps.Keys(all.Properties["dra"].Properties["devices"].Items.Properties))
	difftest.Same(t, "keys in the schema", got, keys)
}
