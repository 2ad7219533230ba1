// Package schema_test compares docs/schema with the parsers of the formats: a schema and its parser must accept the
// same texts.
package schema_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/test/difftest"
)

var must = difftest.Must

func deviceInfo(_ *testing.T, text string) error {
	info, err := devinfo.Parse([]byte(text))
	if err != nil {
		return err
	}
	return info.Validate().Err()
}

func node(t *testing.T, text string) error {
	file := filepath.Join(t.TempDir(), "node.json")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	_, err := config.LoadNode(file)
	return err
}

func plugin(_ *testing.T, text string) error {
	c, err := config.Parse([]byte(text))
	switch {
	case err != nil:
		return err
	case len(c.Problems) > 0:
		return c.Problems[0]
	case len(c.Unknown) > 0: // the plugin logs a warning
		return errors.New(c.Unknown[0].String())
	}
	return nil
}

// network parses a list, or a NetworkAttachmentDefinition with one.
func network(t *testing.T, text string) error {
	var nad struct{ Spec struct{ Config string } }
	if json.Unmarshal([]byte(text), &nad) == nil && nad.Spec.Config != "" {
		text = nad.Spec.Config
	}
	var list struct{ Plugins []json.RawMessage }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return err
	}
	return errors.Join(plugin(t, string(list.Plugins[0])), plugin(t, string(list.Plugins[len(list.Plugins)-1])))
}

// parameters accepts a text that is valid in a class or in a claim.
func parameters(_ *testing.T, text string) error {
	policy := cniconfig.Policy{Driver: "cni.dra.networking.x-k8s.io"}
	config := resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: policy.Driver}}
	config.Opaque.Parameters.Raw = []byte(text)
	class := policy.CheckClass(&resourceapi.DeviceClassSpec{Config: []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: config}}})
	claim := policy.CheckClaim(&resourceapi.DeviceClaim{Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: config}}}, nil)
	if class.Wrong == nil || claim.Wrong == nil {
		return nil
	}
	return errors.Join(class.Wrong[0], claim.Wrong[0])
}

// validated returns the errors and the warnings of devinfoctl validate.
func validated(file, text string, kind validate.Kind) (wrong, warned error) {
	if file == "cniconfig.json" {
		config := `"config": [{"opaque": {"driver": "cni.dra.networking.x-k8s.io", "parameters": ` + text + `}}]}`
		text = `{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {` + config + `}`
		if regexp.MustCompile(`"(ips|mac|infinibandGUID|bandwidth|portMappings)":`).MatchString(config) { // only allowed in a claim
			text = `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": {` + config + `}}`
		}
	}
	docs := validate.Parse("x", []byte(text))
	validate.Checker{}.Check(docs, kind)
	for _, d := range docs {
		for _, f := range d.Findings {
			if err := errors.New(f.String()); f.Warning {
				warned = errors.Join(warned, err)
			} else {
				wrong = errors.Join(wrong, err)
			}
		}
	}
	return wrong, warned
}

// The schema, the parser and devinfoctl validate must all accept a text of testdata, or all refuse it. validate has warnings for
// unknown keys. It also refuses configurations that are valid but unusable on a node, such as a plugin without a path
// for its file.
func TestSchemasAndParsersAgree(t *testing.T) {
	for file, test := range map[string]struct {
		kind  validate.Kind
		parse func(*testing.T, string) error
	}{
		"device-info.json": {validate.DeviceInfo, deviceInfo}, "node.json": {validate.Settings, node},
		"plugin.json": {validate.CNIConfig, plugin}, "conflist.json": {validate.CNIConfig, network}, "network-attachment-definition.json": {validate.CNIConfig, network},
		"cniconfig.json": {validate.DRA, parameters},
	} {
		texts := difftest.Read(t, "testdata/"+strings.TrimSuffix(file, ".json")+".txt")
		good, bad, ok := strings.Cut(strings.TrimSpace(texts), "\n# refused:\n")
		if !ok {
			t.Fatalf("%s: no texts to refuse", file)
		}
		schema := compiled(t, file)
		for text := range strings.SplitSeq(good, "\n") {
			if byParser, bySchema := test.parse(t, text), valid(t, schema, text); byParser != nil || bySchema != nil {
				t.Errorf("%s: %s\nthe parser says: %v\nthe schema says: %v", file, text, byParser, bySchema)
			}
			if wrong, _ := validated(file, text, test.kind); wrong != nil && file != "plugin.json" {
				t.Errorf("%s: %s\nvalidate says: %v", file, text, wrong)
			}
		}
		for text := range strings.SplitSeq(bad, "\n") {
			if byParser, bySchema := test.parse(t, text), valid(t, schema, text); byParser == nil || bySchema == nil {
				t.Errorf("%s: %s\nthe parser says: %v\nthe schema says: %v; both must refuse it", file, text, byParser, bySchema)
			}
			if wrong, warned := validated(file, text, test.kind); wrong == nil && warned == nil {
				t.Errorf("%s: %s\nvalidate finds nothing wrong", file, text)
			}
		}
	}
}

func compiled(t *testing.T, file string) *jsonschema.Schema {
	t.Helper()
	const at = "file:///docs/schema/" // base of the $refs
	compiler := jsonschema.NewCompiler()
	compiler.AssertContent()
	names, err := filepath.Glob("../../docs/schema/*.json")
	for _, name := range names {
		text, readErr := os.Open(name)
		value, parseErr := jsonschema.UnmarshalJSON(text)
		err = errors.Join(err, readErr, parseErr, compiler.AddResource(at+filepath.Base(name), value), text.Close())
	}
	schema, compileErr := compiler.Compile(at + file)
	must(t, errors.Join(err, compileErr))
	return schema
}

func valid(t *testing.T, schema *jsonschema.Schema, text string) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	must(t, err)
	return schema.Validate(value)
}

// The specification's examples and the defaults must match the schemas.
func TestExamplesMatchSchemas(t *testing.T) {
	files, err := filepath.Glob("../../devinfo/testdata/npwg/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	schema := compiled(t, "device-info.json")
	for _, file := range files {
		if err := valid(t, schema, strings.TrimSpace(difftest.Read(t, file))); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// keys returns the top-level keys in a schema.
func keys(t *testing.T, file string) []string {
	t.Helper()
	var schema struct{ Properties map[string]json.RawMessage }
	must(t, json.Unmarshal([]byte(difftest.Read(t, "../../docs/schema/"+file)), &schema))
	return slices.Sorted(maps.Keys(schema.Properties))
}

// docs/reference.md leaves out the keys of every network configuration, such as name.
func TestReferenceListsKeysOfSchemas(t *testing.T) {
	text := difftest.Read(t, "../../docs/reference.md")
	for heading, want := range map[string][]string{
		"## Keys of the network configuration\n": slices.DeleteFunc(keys(t, "plugin.json"), func(key string) bool {
			return slices.Contains([]string{"type", "cniVersion", "cniVersions", "name", "prevResult", "ipMasq", "ipam", "dns", "disableCheck", "disableGC", "cni.dev/valid-attachments", "cni.dev/attachments"}, key)
		}),
		"## Settings of the node\n": keys(t, "node.json"),
	} {
		_, section, _ := strings.Cut(text, heading)
		section, _, _ = strings.Cut(section, "\n## ")
		var documented []string
		for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(section, -1) {
			for key := range strings.SplitSeq(row[1], ", ") {
				key, _, _ = strings.Cut(strings.Trim(key, "`"), ".") // runtimeConfig.deviceID
				documented = append(documented, key)
			}
		}
		slices.Sort(documented)
		if documented = slices.Compact(documented); !slices.Equal(want, documented) {
			t.Errorf("%sthe schema has %q\ndocs/reference.md has %q", heading, want, documented)
		}
	}
}
