package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/cel"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
)

// A Rule selects devices and sets how they are offered. A device meets the rule if it meets each of the given keys
// select, pciAddresses, pfNames, ifNames and drivers. It meets a list by any one of the values. The first rule that
// a device meets applies to it.
type Rule struct {
	Nodes json.RawMessage `json:"nodes"` // [metav1.LabelSelector] of the nodes that the rule applies to; nil = all

	Select       string   `json:"select"`       // CEL expression as in a DeviceClass: device.attributes["devinfo-cni.io"].kind == "vf"
	PCIAddresses []string `json:"pciAddresses"` // PCI addresses of functions: "0000:3b:00.2"
	PFNames      []string `json:"pfNames"`      // interfaces of the PFs of VFs, SFs and vDPA devices, or altnames: "ens1f0"
	IfNames      []string `json:"ifNames"`      // interfaces, or altnames: "eth1"
	Drivers      []string `json:"drivers"`      // drivers of functions: "mlx5_core"

	Sharing              journal.SharingMode        `json:"sharing"`
	AllowHostUse         bool                       `json:"allowHostUse"`         // only exclusive: offer also devices that have addresses or routes of the host
	AllowAdvertisedRoute bool                       `json:"allowAdvertisedRoute"` // only exclusive: offer also devices whose only default routes come from router advertisements
	Attributes           map[string]json.RawMessage `json:"attributes"`           // strings, integers or booleans; names without a domain get Domain
	Publish              []string                   `json:"publish"`              // names in [AttributeNames] to publish, in addition to the mandatory ones; nil = all
	ResourceName         string                     `json:"resourceName"`         // only exclusive: resource name for Multus
	OnDifference         string                     `json:"onDifference"`         // only exclusive: "withhold" or "offer" (default) devices that a pod left different in a way that is not known to harm
	Reset                string                     `json:"reset"`                // only exclusive: bind the driver again after each pod: "auto" (default) for drivers that tests have bound again, "always" for each PCI function, or "never"
	Attachments          int64                      `json:"attachments"`          // only shared: capacity; 0 = DefaultAttachments
	Bandwidth            *json.RawMessage           `json:"bandwidth"`            // only shared: capacity in bit/s, a [resource.Quantity]; nil = none
}

// matchers are the keys of rules that list values of a device.
var matchers = []struct {
	key    string
	values func(*Rule) []string
	of     func(*Device) []string
}{
	{"pciAddresses", func(r *Rule) []string { return r.PCIAddresses }, func(d *Device) []string { return []string{d.PCI} }},
	{"ifNames", func(r *Rule) []string { return r.IfNames }, func(d *Device) []string { return append([]string{d.IfName}, d.Also...) }},
	{"pfNames", func(r *Rule) []string { return r.PFNames }, func(d *Device) []string { return append([]string{Text(d.Attributes, AttrPFName)}, d.PFAlso...) }},
	{"drivers", func(r *Rule) []string { return r.Drivers }, func(d *Device) []string { return []string{d.Driver} }},
}

// DefaultAttachments is the default number of pods for a shared device: the number of usable ports of a Linux bridge
// (BR_MAX_PORTS - 1, because port 0 does not exist).
const DefaultAttachments = 1023

// maxAttributes is the maximum number of attributes in a rule. The API limits the attributes and capacities of a
// device (ResourceSliceMaxAttributesAndCapacitiesPerDevice).
const maxAttributes = 8

type Rules []rule // nil = the configuration has no key "devices"

type rule struct {
	Rule
	nodes      labels.Selector        // nil = all
	elsewhere  bool                   // the rule does not apply to this node
	selects    *cel.CompilationResult // nil = the rule has no select
	attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	published  []resourceapi.QualifiedName // nil = all
	bandwidth  resource.Quantity           // 0 = none
}

// ParseRules parses the key "devices" of a configuration in YAML or JSON, {devices: [...]}. No other key is allowed.
// The error names each wrong rule by its index and key. A configuration without rules is valid and offers no
// devices; [Rules.Unmatched] reports it if the key "devices" is missing.
func ParseRules(configuration []byte) (Rules, error) {
	data, err := yaml.YAMLToJSONStrict(configuration)
	if err != nil {
		return nil, fmt.Errorf("invalid YAML: %w", err)
	}
	if several(configuration) {
		return nil, errors.New("it has several documents, of which only the first would count; write all rules in one list, without ---")
	}
	var file struct {
		Devices []json.RawMessage `json:"devices"`
	}
	if err := strictly(data, &file); err != nil || file.Devices == nil {
		return nil, err
	}
	rules, errs := make(Rules, len(file.Devices)), make([]error, len(file.Devices))
	for n, raw := range file.Devices {
		if raw[0] != '{' {
			errs[n] = fmt.Errorf("devices[%d]: %s is not a rule; write a map, such as {pfNames: [ens1f0], sharing: exclusive}", n, raw)
		} else if rules[n], errs[n] = newRule(raw); errs[n] != nil {
			errs[n] = fmt.Errorf("devices[%d].%w", n, errs[n])
		}
	}
	return rules, errors.Join(errs...)
}

// several reports whether YAML has more documents than one. One of comments alone counts if it is not the first, which a
// parser would skip.
func several(text []byte) bool {
	documents := yamlnode.NewDecoder(bytes.NewReader(text))
	for n := 0; ; n++ {
		var document any
		if err := documents.Decode(&document); err != nil || n > 0 && document != nil {
			return n > 0 && !errors.Is(err, io.EOF)
		}
	}
}

// strictly decodes JSON and returns an error for the first key that is unknown, misspelled or duplicate.
func strictly(data []byte, to any) error {
	strict, err := kjson.UnmarshalStrict(data, to)
	switch is, wrong := errors.AsType[*json.UnmarshalTypeError](err); {
	case wrong && is.Field == "":
		return fmt.Errorf("it is a JSON %s, but must be a map, {%s: ...}", is.Value, keysOf(to)[0])
	case wrong:
		return fmt.Errorf("%s: it is a JSON %s, but must be %s", is.Field, is.Value, kindWords[is.Type.Kind()])
	case err != nil:
		return err
	}
	if len(strict) == 0 {
		return nil
	}
	key := strict[0].Error()
	if at, ok := strict[0].(kjson.FieldError); ok {
		key = at.FieldPath()
	}
	if slices.Contains(keysOf(to), key) {
		return fmt.Errorf("%s: the key occurs twice; remove one of them", key)
	}
	return fmt.Errorf("%s: the key is not known; %s", key, config.Suggest(key, keysOf(to)))
}

// kindWords describe the values of keys in rules.
var kindWords = map[reflect.Kind]string{
	reflect.Slice: `a list, ["..."]`, reflect.String: `a string, "..."`, reflect.Bool: "true or false", reflect.Int64: "a whole number", reflect.Map: "a map, {name: value}",
}

func keysOf(to any) (keys []string) {
	of := reflect.TypeOf(to).Elem()
	for n := range of.NumField() {
		key, _, _ := strings.Cut(of.Field(n).Tag.Get("json"), ",")
		keys = append(keys, key)
	}
	return keys
}

func newRule(raw json.RawMessage) (r rule, err error) {
	if err = strictly(raw, &r.Rule); err == nil {
		err = r.check()
	}
	if err == nil && r.Nodes != nil {
		r.nodes, err = selector(r.Nodes)
	}
	if err == nil {
		r.attributes, err = attributes(r.Attributes)
	}
	if err == nil {
		r.published, err = published(r.Publish)
	}
	if err != nil || r.Select == "" {
		return r, err
	}
	// Compile it as the scheduler compiles the expression of a DeviceClass.
	program := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(r.Select, cel.Options{})
	if program.Error != nil {
		return r, fmt.Errorf("select: %s", program.Error.Detail)
	}
	r.selects = &program
	return r, nil
}

// selector parses a label selector. It refuses an empty selector, because a rule for all nodes needs none.
func selector(raw json.RawMessage) (labels.Selector, error) {
	var s metav1.LabelSelector
	if raw[0] != '{' {
		return nil, fmt.Errorf("nodes: %s is not a label selector; write a map, such as {matchLabels: {rack: a}}", raw)
	}
	if err := strictly(raw, &s); err != nil {
		return nil, fmt.Errorf("nodes.%w", err)
	}
	nodes, err := metav1.LabelSelectorAsSelector(&s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("nodes: %w", err)
	case nodes.Empty():
		return nil, errors.New("nodes: the selector selects all nodes; remove it, or give matchLabels or matchExpressions")
	}
	return nodes, nil
}

// SelectNodes reports whether any rule applies to some nodes only. Such rules need [Rules.On].
func (r Rules) SelectNodes() bool {
	return slices.ContainsFunc(r, func(r rule) bool { return r.nodes != nil })
}

// On disables the rules that do not apply to a node with these labels. Each rule keeps its index.
func (r Rules) On(node map[string]string) Rules {
	r = slices.Clone(r)
	for n := range r {
		r[n].elsewhere = r[n].nodes != nil && !r[n].nodes.Matches(labels.Set(node))
	}
	return r
}

// check refuses invalid values and combinations. It converts PCI addresses to their usual spelling.
func (r *rule) check() error {
	for n, text := range r.PCIAddresses {
		a, err := pci.Parse(text)
		if err != nil {
			return fmt.Errorf("pciAddresses[%d]: %w", n, err)
		}
		r.PCIAddresses[n] = a.String()
	}
	for key, names := range map[string][]string{"pfNames": r.PFNames, "ifNames": r.IfNames} {
		for n, name := range names {
			if name == "" || len(name) > 127 || strings.ContainsAny(name, "/*?[# ") {
				return fmt.Errorf("%s[%d]: %q is not an interface name; wildcards and ranges of VFs are not supported: use select", key, n, name)
			}
		}
	}
	if n := slices.Index(r.Drivers, ""); n >= 0 {
		return fmt.Errorf("drivers[%d]: the name is empty; give a driver such as \"mlx5_core\"", n)
	}
	const longest = resourceapi.DeviceAttributeMaxValueLength
	switch {
	case r.Select == "" && len(slices.Concat(r.PCIAddresses, r.PFNames, r.IfNames, r.Drivers)) == 0:
		return errors.New("select: the rule selects no devices; give select, pciAddresses, pfNames, ifNames or drivers")
	case r.Sharing == "":
		return errors.New(`sharing: the key is missing; write "shared" or "exclusive"`)
	case r.Sharing != journal.Shared && r.Sharing != journal.Exclusive:
		return fmt.Errorf(`sharing: %q is not known; write "shared" or "exclusive"`, r.Sharing)
	case r.Sharing == journal.Shared && (r.AllowHostUse || r.AllowAdvertisedRoute):
		return errors.New("allowHostUse, allowAdvertisedRoute: the host keeps shared devices in any case; remove them, or write sharing: exclusive")
	case r.Sharing == journal.Shared && r.ResourceName != "":
		return fmt.Errorf("resourceName: %q: Multus needs exclusive devices; remove it, or write sharing: exclusive", r.ResourceName)
	case len(r.ResourceName) > longest:
		return fmt.Errorf("resourceName: %q has %d bytes, at most %d are allowed", r.ResourceName, len(r.ResourceName), longest)
	case r.ResourceName != "" && (len(validation.IsQualifiedName(r.ResourceName)) > 0 || !strings.Contains(r.ResourceName, "/")):
		return fmt.Errorf("resourceName: %q is not a resource name such as example.com/vf", r.ResourceName)
	case r.OnDifference != "" && r.OnDifference != "offer" && r.OnDifference != "withhold":
		return fmt.Errorf(`onDifference: %q is not known; write "offer" or "withhold"`, r.OnDifference)
	case !slices.Contains([]string{"", "auto", "always", "never"}, r.Reset):
		return fmt.Errorf(`reset: %q is not known; write "auto", "always" or "never"`, r.Reset)
	case r.Sharing == journal.Shared && r.OnDifference+r.Reset != "":
		return errors.New("onDifference, reset: only exclusive devices are restored; remove them, or write sharing: exclusive")
	case r.Sharing == journal.Exclusive && (r.Attachments != 0 || r.Bandwidth != nil):
		return errors.New("attachments, bandwidth: only shared devices have them; remove them, or write sharing: shared")
	case r.Attachments < 0:
		return fmt.Errorf("attachments: %d is less than 0; remove it for the default, %d", r.Attachments, DefaultAttachments)
	}
	if r.Bandwidth != nil {
		err := r.bandwidth.UnmarshalJSON(*r.Bandwidth)
		if n, whole := r.bandwidth.AsInt64(); err != nil || !whole || n < 1 {
			return fmt.Errorf(`bandwidth: %s is not a whole number of bit/s above 0, such as "25G"`, *r.Bandwidth)
		}
	}
	return nil
}
