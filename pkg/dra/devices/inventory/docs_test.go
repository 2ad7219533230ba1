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
	"devinfo-cni.io/test/difftest"
)

// documented returns the attributes in the table of the documentation, with the types of their values.
func documented(t *testing.T) map[resourceapi.QualifiedName]string {
	t.Helper()
	types := map[resourceapi.QualifiedName]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w./-]+)` \\| (string|int|bool) \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(strings.Join(difftest.Pages(t, docs), "\n"), -1) {
		types[resourceapi.QualifiedName(row[1])] = row[2]
	}
	return types
}

const docs = "../../../../docs/dra"

func TestExamplesOfRulesAreValid(t *testing.T) {
	seen := 0
	for _, block := range difftest.Blocks(t, docs, "yaml") {
		if strings.Contains("\n"+block, "\ndevices:") {
			rules(t, block)
			seen++
		}
	}
	if seen == 0 {
		t.Error("no rules")
	}
}

// Each class has a text that no other example contains. The first selects the device for networks without hardware.
func TestClassesInDocumentationSelectDevices(t *testing.T) {
	example := difftest.Read(t, docs+"/../../deploy/cni-dra-driver/examples/first-available.yaml")
	for text, want := range map[string]string{
		`!("kind" in `: "0", `physicalNetwork == "blue"`: "1", "# class.yaml\n": "1", "# multus.yaml\n": "1", example: "4",
	} {
		document := text
		if text != example {
			document = difftest.Block(t, docs, "yaml", text)
		}
		first, _, _ := strings.Cut(document, "\n---\n")
		var class struct {
			resourceapi.DeviceClassSpec // without the object around it
			Spec                        resourceapi.DeviceClassSpec
		}
		difftest.Must(t, yaml.Unmarshal([]byte(first), &class))
		selectors := append(class.Selectors, class.Spec.Selectors...)
		difftest.Same(t, text, selected(t, selectors[0].CEL.Expression), want)
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

// The YAML parser reads the first document alone, so that the rules of the others would have no effect.
func TestRulesInSeveralDocumentsAreError(t *testing.T) {
	const rule = "devices: [{ifNames: [a], sharing: shared}]\n"
	for text, several := range map[string]bool{
		rule + "---\n" + rule: true, "---\n# none\n---\n" + rule: true, "devices: []\n--- # more\n" + rule: true, rule + "---\ndevices: [": true,
		"# ours\n---\n" + rule: false, "---\n" + rule + "---\n": false, rule + "---\n# the end": false, "--- # ours\n" + rule: false,
	} {
		if _, err := inventory.ParseRules([]byte(text)); (err != nil) != several {
			t.Errorf("%q: %v", text, err)
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
	difftest.Must(t, json.Unmarshal([]byte(difftest.Read(t, "../../../../deploy/charts/devinfo/values.schema.json")), &all))
	var keys []string
	for n, rule := 0, reflect.TypeFor[inventory.Rule](); n < rule.NumField(); n++ {
		keys = append(keys, rule.Field(n).Tag.Get("json"))
	}
	slices.Sort(keys)
	got := slices.Sorted(maps.Keys(all.Properties["dra"].Properties["devices"].Items.Properties))
	difftest.Same(t, "keys in the schema", got, keys)
}
