// Package schema_test compares docs/schema with the parsers of the formats: a schema and its parser must accept the
// same texts. It is a separate module because only this test needs the validator.
package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/dra/cniconfig"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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

// nad returns a definition with this configuration.
func nad(config string) string {
	return `{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "n"}, "spec": {"config": ` + strconv.Quote(config) + `}}`
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

// chain returns a list where devinfo has this key for its capabilities.
func chain(key string) string {
	return `{"cniVersion": "1.0.0", "name": "n", "disableCheck": true, "plugins": [{"type": "devinfo", "deviceID": "x", "deviceInfoFile": "auto"}, {"type": "devinfo", "deviceInfoFile": "auto", "` + key + `": {"CNIDeviceInfoFile": true}}]}`
}

const head = `"apiVersion": "cni.networking.x-k8s.io/v1alpha1", "kind": "CNIConfig"`

// validated returns the errors and the warnings of devinfoctl validate.
func validated(file, text string, kind validate.Kind) (wrong, warned error) {
	if file == "cniconfig.json" {
		config := `"config": [{"opaque": {"driver": "cni.dra.networking.x-k8s.io", "parameters": ` + text + `}}]}`
		text = `{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {` + config + `}`
		if strings.Contains(config, `"ips":`) { // only allowed in a claim
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

// The schema, the parser and devinfoctl validate must all accept a text, or all refuse it. validate has warnings for
// unknown keys. It also refuses configurations that are valid but unusable on a node, such as a plugin without a path
// for its file.
func TestSchemasAndParsersAgree(t *testing.T) {
	for file, test := range map[string]struct {
		kind      validate.Kind
		parse     func(*testing.T, string) error
		good, bad []string
	}{
		"device-info.json": {validate.DeviceInfo, deviceInfo, []string{
			`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.3", "rdma-device": "mlx5_3", "other": 1}}`,
			`{"type": "pci", "version": "1.0.0", "pci": {"pci-address": "0000:03:00.3", "vhost-net": "/dev/vhost-net"}, "more": {}}`,
			`{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost", "path": "/dev/vhost-vdpa-0"}}`,
			`{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "server", "path": "/run/s"}}`,
			`{"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "path": "/run/m", "mode": "ip"}}`,
		}, []string{
			`[]`, `{}`, `{"type": "pci"}`, `{"type": "pci", "version": "1.1.0"}`, `{"type": "pci", "version": "2.0.0", "pci": {"pci-address": "0000:03:00.3"}}`,
			`{"type": "pci", "version": "1.1.0", "pci": {}}`, `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "03:00.3"}}`,
			`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.8"}}`, `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": 3}}`,
			`{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost", "path": "vhost-vdpa-0"}}`,
			`{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vfio", "path": "/dev/vhost-vdpa-0"}}`,
			`{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost"}}`,
			`{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "both", "path": "/run/s"}}`,
			`{"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "path": "/run/m"}}`, `{"type": "usb", "version": "1.1.0"}`,
		}},
		"node.json": {validate.Settings, node, []string{
			`{}`, `{"logLevel": "debug", "stateDir": "/s", "allowedDevices": ["*", "0000:03:00.0"], "socketDirs": ["/run/s"], "logFile": "", "injectDeviceNodes": true}`, `{"logFile": "/var/log/x\ny", "allowedDevices": null}`,
			`{"allowedDevices": ["pci/0000:03:00.0", "vdpa:0000:65:00.3", "auxiliary/mlx5_core.sf.4", "00010000:3B:1f.7", "face"], "stateDir": "/a..b/..c/.d", "socketDirs": null, "logLevel": "Warn-1"}`,
		}, []string{
			`{"logLevel": "loud"}`, `{"stateDir": "s"}`, `{"sysfs": 1}`, `{"stateDirectory": "/s"}`, `{"socketDirs": ["run"]}`, `{"socketDirs": "/run"}`, `{"logFile": "x"}`,
			`{"allowedDevices": [""]}`, `{"injectDeviceNodes": "true"}`, `[]`, `{"allowedDevices": ["0000:03:00"]}`, `{"allowedDevices": ["03:00.0"]}`, `{"allowedDevices": ["pci/vdpa0"]}`,
			`{"allowedDevices": ["0000:03:20.0"]}`, `{"allowedDevices": [null]}`, `{"socketDirs": [null]}`, `{"stateDir": "/var/../x"}`, `{"cdiDir": "/var/run/.."}`, `{"socketDirs": ["/.."]}`,
			`{"stateDir": null}`, `{"injectDeviceNodes": null}`, `{"logLevel": null}`, `{"logLevel": ""}`, `{"logLevel": "info+99999999999999999999"}`, `{"logLevel": "info+"}`,
		}},
		"plugin.json": {validate.CNIConfig, plugin, []string{
			`{"type": "devinfo", "deviceID": "0000:3b:00.2", "pciBusID": "gpu-1"}`, `{"type": "devinfo"}`, `{"type": "devinfo", "strict": true, "cdi": true, "deviceInfoFile": "auto", "capabilities": {"CNIDeviceInfoFile": true}}`,
			`{"type": "devinfo", "cdi": {"kind": "a.b/c", "name": "n"}, "delegates": [{"type": "macvlan"}], "deviceInfo": {}, "followLower": false}`,
			`{"type": "devinfo", "deviceID": "mlx5_core.sf.4", "pciBusID": "10000:E1:00.1"}`, `{"type": "devinfo", "deviceID": "02:00:00:00:00:01"}`,
		}, []string{
			`{"type": "devinfo", "deviceID": "0000:3b:00.8"}`, `{"type": "devinfo", "deviceID": "000:3b:00.2"}`, `{"type": "devinfo", "pciBusID": "0000:3b:20.2"}`, `{"type": "devinfo", "deviceID": "x "}`, `{"type": "devinfo", "deviceID": "3b:00.9"}`,
			`{"type": "devinfo", "delegates": [` + strings.Repeat(`{"type": "a"},`, 32) + `{"type": "a"}]}`,
			`{"type": "devinfo", "strict": "yes"}`, `{"type": "devinfo", "capabilities": {"mac": 1}}`, `{"type": "devinfo", "deviceInfo": []}`, `{"type": "devinfo", "deviceInfoFile": "/run/x"}`,
			`{"type": "devinfo", "capabilites": {"CNIDeviceInfoFile": true}}`, `{"type": "devinfo", "delegates": {}}`, `{"type": "devinfo", "delegates": [{}]}`, `{"type": "devinfo", "delegates": [{"type": "../x"}]}`,
			`{"type": "devinfo", "cdi": "yes"}`, `{"type": "devinfo", "deviceID": 3}`, `{"type": "devinfo", "deviceID": "3b:00.2"}`, `{"type": "devinfo", "pciBusID": "3b:00.2"}`, `{"type": "devinfo", "subfunctionParent": 1}`, `{"type": "devinfo", "runtimeConfig": {"deviceID": 1}}`,
		}},
		"conflist.json": {validate.CNIConfig, network, []string{chain("capabilities")}, []string{
			chain("capabilites"), chain("delegates"),
		}},
		"network-attachment-definition.json": {validate.CNIConfig, network, []string{nad(chain("capabilities"))}, []string{nad(chain("capabilites"))}},
		"cniconfig.json": {validate.DRA, parameters, []string{
			`{` + head + `, "ifName": "net1"}`, `{` + head + `, "ifName": "dpdk-port{index}"}`, `{` + head + `, "ifName": "net1", "ips": ["10.0.0.1/24"]}`, `{` + head + `, "ifName": "net1", "allowedClaimArgs": ["ips"], "waitForAttach": false}`,
			`{` + head + `, "ifName": "net1", "device": [{"plugin": "macvlan", "key": "master"}]}`, `{` + head + `, "ifName": "net1", "device": []}`,
			`{` + head + `, "ifName": "net1", "driver": "vfio-pci", "waitForAttach": true}`,
			`{` + head + `, "config": {"cniVersion": "1.0.0", "name": "n", "type": "macvlan"}}`,
			`{` + head + `, "config": {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "macvlan"}]}}`,
		}, []string{
			`{}`, `{` + head + `}`, `{"apiVersion": "v1", "kind": "CNIConfig", "ifName": "net1"}`, `{` + head + `, "ifname": "net1"}`, `{` + head + `, "ifName": "eth0"}`,
			`{` + head + `, "ifName": "sixteen-letters1"}`, `{` + head + `, "ifName": "a/b"}`, `{` + head + `, "ifName": "net{idx}"}`, `{` + head + `, "config": "{}"}`, `{` + head + `, "config": {"cniVersion": "1.0.0", "name": "n"}}`,
			`{` + head + `, "config": {"cniVersion": "9", "name": "n", "type": "macvlan"}}`, `{` + head + `, "config": {"cniVersion": "1.0.0", "name": "n", "plugins": []}}`,
			`{` + head + `, "config": {"cniVersion": "1.0.0", "name": "-", "type": "macvlan"}}`, `{` + head + `, "ifName": "net1", "waitForAttach": "no"}`, `{` + head + `, "ifName": "net1", "waitForAttach": null}`, `{` + head + `, "ifName": "net1", "allowedClaimArgs": ["dns"]}`,
			`{` + head + `, "ifName": "net1", "driver": "uio_pci_generic"}`, `{` + head + `, "ifName": "net1", "driver": ["vfio-pci"]}`, `{` + head + `, "ifName": "net1", "driver": ""}`,
		}},
	} {
		schema := compiled(t, file)
		for _, text := range test.good {
			if byParser, bySchema := test.parse(t, text), valid(t, schema, text); byParser != nil || bySchema != nil {
				t.Errorf("%s: %s\nthe parser says: %v\nthe schema says: %v", file, text, byParser, bySchema)
			}
			if wrong, _ := validated(file, text, test.kind); wrong != nil && file != "plugin.json" {
				t.Errorf("%s: %s\nvalidate says: %v", file, text, wrong)
			}
		}
		for _, text := range test.bad {
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
		text, err := os.ReadFile(file)
		must(t, err)
		if err := valid(t, schema, string(bytes.TrimSpace(text))); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// keys returns the top-level keys in a schema.
func keys(t *testing.T, file string) []string {
	t.Helper()
	var schema struct{ Properties map[string]json.RawMessage }
	text, err := os.ReadFile("../../docs/schema/" + file)
	must(t, err)
	must(t, json.Unmarshal(text, &schema))
	return slices.Sorted(maps.Keys(schema.Properties))
}

// docs/reference.md leaves out the keys of every network configuration, such as name.
func TestReferenceListsKeysOfSchemas(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference.md")
	must(t, err)
	for heading, want := range map[string][]string{
		"## Keys of the network configuration\n": slices.DeleteFunc(keys(t, "plugin.json"), func(key string) bool {
			return slices.Contains([]string{"type", "cniVersion", "cniVersions", "name", "prevResult", "ipMasq", "ipam", "dns", "disableCheck", "disableGC", "cni.dev/valid-attachments", "cni.dev/attachments"}, key)
		}),
		"## Settings of the node\n": keys(t, "node.json"),
	} {
		_, section, _ := strings.Cut(string(text), heading)
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
