package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/cel"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
)

// SharingMode is how a device is offered.
type SharingMode = journal.SharingMode

// The values of a rule's key "sharing".
const (
	Shared    = journal.Shared    // to any number of pods at a time
	Exclusive = journal.Exclusive // to one
)

// A Rule names devices and says as what they are offered. A device must meet each of the
// keys select, pciAddresses, pfNames, ifNames and drivers that is given, by any one of its
// values. The first rule that a device meets counts.
type Rule struct {
	Nodes json.RawMessage `json:"nodes"` // [metav1.LabelSelector] of the nodes that the rule applies to; nil = all

	Select       string   `json:"select"`       // CEL, as in a DeviceClass: device.attributes["devinfo-cni.io"].kind == "vf"
	PCIAddresses []string `json:"pciAddresses"` // of functions: "0000:3b:00.2"
	PFNames      []string `json:"pfNames"`      // of the PFs of VFs, SFs and vDPA devices: "ens1f0"
	IfNames      []string `json:"ifNames"`      // of interfaces: "eth1"
	Drivers      []string `json:"drivers"`      // of functions: "mlx5_core"

	Sharing      SharingMode                `json:"sharing"`
	AllowHostUse bool                       `json:"allowHostUse"` // of exclusive devices: also what has the host's addresses or routes
	Attributes   map[string]json.RawMessage `json:"attributes"`   // strings, integers, booleans; a name without domain is in Domain
	Publish      []string                   `json:"publish"`      // what a ResourceSlice has of the attributes in [AttributeNames], beside those that it always has; nil = all
	ResourceName string                     `json:"resourceName"` // for Multus; of exclusive devices
	Attachments  int64                      `json:"attachments"`  // capacity of a shared device; 0 = DefaultAttachments
	Bandwidth    *bandwidth                 `json:"bandwidth"`    // capacity of a shared device, bit/s
}

type bandwidth struct{ resource.Quantity }

// UnmarshalJSON names the key in its error, which the error of a quantity does not.
func (b *bandwidth) UnmarshalJSON(raw []byte) error {
	if b.Quantity.UnmarshalJSON(raw) != nil {
		return fmt.Errorf(`bandwidth: %s is no number of bit/s; write one such as "25G"`, raw)
	}
	return nil
}

// DefaultAttachments is how many pods a shared device is offered to: as many as a Linux
// bridge has usable ports (BR_MAX_PORTS - 1, as port 0 does not exist).
const DefaultAttachments = 1023

// maxAttributes is how many attributes a rule may give: a device may have
// ResourceSliceMaxAttributesAndCapacitiesPerDevice attributes and capacities.
const maxAttributes = 8

// Rules are rules that have been checked.
type Rules struct {
	list   []rule
	absent bool // the configuration has not even an empty list
}

type rule struct {
	Rule
	nodes      labels.Selector        // nil = all
	elsewhere  bool                   // the rule does not apply to this node
	selects    *cel.CompilationResult // nil = it has none
	attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	published  []resourceapi.QualifiedName // nil = all
}

// ParseRules reads the key "devices" of a configuration in YAML or JSON, {devices: [...]}.
// It knows no other key. The error names each wrong rule by its index and key. No rules are valid:
// nothing is offered, and [Rules.Idle] says so unless the list is there.
func ParseRules(configuration []byte) (Rules, error) {
	data, err := yaml.YAMLToJSONStrict(configuration)
	if err != nil {
		return Rules{}, fmt.Errorf("invalid YAML: %w", err)
	}
	var file struct {
		Devices []json.RawMessage `json:"devices"`
	}
	if err := strictly(data, &file); err != nil {
		return Rules{}, err
	}
	rules := Rules{absent: file.Devices == nil}
	var errs []error
	for n, raw := range file.Devices {
		if raw[0] != '{' {
			errs = append(errs, fmt.Errorf("devices[%d]: %s is no rule; write a map, such as {pfNames: [ens1f0], sharing: exclusive}", n, raw))
			continue
		}
		r, err := newRule(raw)
		if rules.list = append(rules.list, r); err != nil {
			errs = append(errs, fmt.Errorf("devices[%d].%w", n, err))
		}
	}
	return rules, errors.Join(errs...)
}

// strictly decodes JSON whose keys are all known, once, and in this spelling. The error names
// the first that is not.
func strictly(data []byte, to any) error {
	strict, err := kjson.UnmarshalStrict(data, to)
	switch is, wrong := errors.AsType[*json.UnmarshalTypeError](err); {
	case wrong && is.Field == "":
		return fmt.Errorf("it is a JSON %s; it must be a map, {%s: ...}", is.Value, keysOf(to)[0])
	case wrong:
		return fmt.Errorf("%s: a JSON %s; it must be %s", is.Field, is.Value, kindWords[is.Type.Kind()])
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
		return fmt.Errorf("%s: it is given twice; leave one", key)
	}
	return fmt.Errorf("%s: the key is not known; did you mean %s?", key, config.Nearest(key, keysOf(to)))
}

// kindWords are what keys of rules hold.
var kindWords = map[reflect.Kind]string{
	reflect.Slice: `a list, ["..."]`, reflect.String: `text, "..."`, reflect.Bool: "true or false", reflect.Int64: "a whole number", reflect.Map: "a map, {name: value}",
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
	if err != nil {
		return rule{}, err
	}
	if r.Select != "" { // as in a DeviceClass
		program := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(r.Select, cel.Options{})
		if program.Error != nil {
			return rule{}, fmt.Errorf("select: %s", program.Error.Detail)
		}
		r.selects = &program
	}
	return r, nil
}

// selector parses a label selector. It refuses one that selects all nodes, which is a mistake in a rule.
func selector(raw json.RawMessage) (labels.Selector, error) {
	var s metav1.LabelSelector
	if raw[0] != '{' {
		return nil, fmt.Errorf("nodes: %s is no label selector; write a map, such as {matchLabels: {rack: a}}", raw)
	}
	if err := strictly(raw, &s); err != nil {
		return nil, fmt.Errorf("nodes.%w", err)
	}
	nodes, err := metav1.LabelSelectorAsSelector(&s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("nodes: %w", err)
	case nodes.Empty():
		return nil, errors.New("nodes: it selects all nodes; leave it out, or give matchLabels or matchExpressions")
	}
	return nodes, nil
}

// SelectNodes reports whether a rule applies to some nodes only. Such rules need [Rules.On].
func (r Rules) SelectNodes() bool {
	return slices.ContainsFunc(r.list, func(r rule) bool { return r.nodes != nil })
}

// On returns the rules as they apply to the node with these labels. Their indexes stay.
func (r Rules) On(node map[string]string) Rules {
	r.list = slices.Clone(r.list)
	for n := range r.list {
		r.list[n].elsewhere = r.list[n].nodes != nil && !r.list[n].nodes.Matches(labels.Set(node))
	}
	return r
}

// check refuses values that have no meaning, or none together. It gives addresses their usual spelling.
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
			if name == "" || len(name) > 15 || strings.ContainsAny(name, "/*?[# ") {
				return fmt.Errorf("%s[%d]: %q is not an interface name; there are no wildcards, nor ranges of VFs: use select", key, n, name)
			}
		}
	}
	if n := slices.Index(r.Drivers, ""); n >= 0 {
		return fmt.Errorf("drivers[%d]: it is empty; name a driver such as \"mlx5_core\"", n)
	}
	const longest = resourceapi.DeviceAttributeMaxValueLength
	switch {
	case r.Select == "" && len(r.PCIAddresses)+len(r.PFNames)+len(r.IfNames)+len(r.Drivers) == 0:
		return errors.New("select: nothing is named; give select, pciAddresses, pfNames, ifNames or drivers")
	case r.Sharing == "":
		return errors.New(`sharing: it is missing; write "shared" or "exclusive"`)
	case r.Sharing != Shared && r.Sharing != Exclusive:
		return fmt.Errorf(`sharing: %q is not known; write "shared" or "exclusive"`, r.Sharing)
	case r.Sharing == Shared && r.AllowHostUse:
		return errors.New("allowHostUse: the host keeps what is shared; leave it out, or write sharing: exclusive")
	case r.Sharing == Shared && r.ResourceName != "":
		return fmt.Errorf("resourceName: %q: Multus takes whole devices; leave it out, or write sharing: exclusive", r.ResourceName)
	case len(r.ResourceName) > longest:
		return fmt.Errorf("resourceName: %q has %d bytes, at most %d are allowed", r.ResourceName, len(r.ResourceName), longest)
	case r.ResourceName != "" && (len(validation.IsQualifiedName(r.ResourceName)) > 0 || !strings.Contains(r.ResourceName, "/")):
		return fmt.Errorf("resourceName: %q is not a resource name such as example.com/vf", r.ResourceName)
	case r.Sharing == Exclusive && (r.Attachments != 0 || r.Bandwidth != nil):
		return errors.New("attachments, bandwidth: only shared devices have them; leave them out, or write sharing: shared")
	case r.Attachments < 0:
		return fmt.Errorf("attachments: %d is less than 0; leave it out for %d", r.Attachments, DefaultAttachments)
	}
	if r.Bandwidth != nil {
		if n, whole := r.Bandwidth.AsInt64(); !whole || n < 1 {
			return fmt.Errorf("bandwidth: %s is not a whole number of bit/s above 0", r.Bandwidth)
		}
	}
	return nil
}

func (r Rules) choose(d *Device, driver string) Decision {
	c := Decision{Rule: -1, Why: "no rule names it"}
	for n := range r.list {
		if r.list[n].elsewhere {
			continue
		}
		met, err := r.list[n].meets(d, driver)
		if err != nil {
			c.Why = fmt.Sprintf("no rule names it; devices[%d].%v", n, err)
			if c.failed == nil {
				c.failed = map[int]error{}
			}
			c.failed[n] = err
		}
		if met {
			return Decision{Rule: n, Sharing: r.list[n].Sharing, rule: &r.list[n], failed: c.failed}
		}
	}
	return c
}

// matchers are the keys of rules whose values are compared with one of a device.
var matchers = []struct {
	key    string
	values func(*Rule) []string
	of     func(*Device) string
}{
	{"pciAddresses", func(r *Rule) []string { return r.PCIAddresses }, func(d *Device) string { return d.PCI }},
	{"ifNames", func(r *Rule) []string { return r.IfNames }, func(d *Device) string { return d.IfName }},
	{"pfNames", func(r *Rule) []string { return r.PFNames }, func(d *Device) string { return d.PFName }},
	{"drivers", func(r *Rule) []string { return r.Drivers }, func(d *Device) string { return d.Driver }},
}

// meets reports whether a device meets the rule. An error is that of the rule's expression, for example
// because it asks for an attribute that the device does not have.
func (r *rule) meets(d *Device, driver string) (bool, error) {
	for _, m := range matchers {
		if values := m.values(&r.Rule); len(values) > 0 && !slices.Contains(values, m.of(d)) {
			return false, nil
		}
	}
	if r.selects == nil {
		return true, nil
	}
	shared := r.Sharing == Shared
	met, _, err := r.selects.DeviceMatches(context.Background(), cel.Device{
		Driver: driver, AllowMultipleAllocations: &shared, Attributes: d.Attributes,
	})
	if err != nil {
		return false, fmt.Errorf("select: %w", err)
	}
	return met, nil
}

// names reports whether the rule has the device's own name or address.
func (r *rule) names(d *Device) bool {
	return slices.Contains(r.IfNames, d.IfName) || slices.Contains(r.PCIAddresses, d.PCI)
}

// Idle returns the rules that no device meets, in their order, each with the reason.
func (r Rules) Idle(decisions []Decision, links []link.InterfaceRecord) (list []state.Idle) {
	if r.absent {
		return []state.Idle{{Rule: "devices", Why: "the file has no rules; write some, such as devices: [{pfNames: [ens1f0np0], sharing: exclusive}], or devices: [] if none is to be offered"}}
	}
	used, known := map[int]bool{}, map[string][]string{} // by index; what devices have, by key
	for n := range decisions {
		used[decisions[n].Rule] = true
		for _, m := range matchers {
			if value := m.of(&decisions[n].Device); value != "" {
				known[m.key] = append(known[m.key], value)
			}
		}
	}
	for n := range r.list {
		if !used[n] && !r.list[n].elsewhere {
			list = append(list, explain(n, &r.list[n].Rule, known, links, failure(decisions, n)))
		}
	}
	return list
}

// failure returns why the expression of a rule has no result for any device that reaches the rule; "" = it
// has one.
func failure(decisions []Decision, rule int) (why string) {
	for n := range decisions {
		d := &decisions[n]
		if err := d.failed[rule]; err != nil {
			why = err.Error()
		} else if d.Rule < 0 || d.Rule > rule {
			return ""
		}
	}
	return why
}

func explain(n int, r *Rule, known map[string][]string, links []link.InterfaceRecord, failure string) (idle state.Idle) {
	var names, why []string
	for _, m := range matchers {
		values := m.values(r)
		if len(values) > 0 {
			names = append(names, m.key+": "+strings.Join(values, ", "))
		}
		for _, value := range values {
			if slices.Contains(known[m.key], value) {
				continue
			}
			text := noDevice(value, links)
			switch {
			case m.key == "pciAddresses":
				text = value + " is not on this node"
			case m.key == "drivers":
				text = "no device has the driver " + value
			case m.key == "pfNames" && slices.Contains(known["ifNames"], value):
				text = "no VF, SF or vDPA device is on " + value
			}
			if near := config.Nearest(value, known[m.key]); near != "" {
				text += "; the nearest is " + near
				idle.Nearest = cmp.Or(idle.Nearest, near)
			}
			why = append(why, text)
		}
	}
	if r.Select != "" {
		names = append(names, "select")
	}
	idle.Rule = fmt.Sprintf("devices[%d] (%s)", n, strings.Join(names, "; "))
	idle.Why = cmp.Or(strings.Join(why, "; "), failure, "none meets all of its keys, or another rule is before it")
	return idle
}

// noDevice returns what an interface of no device is.
func noDevice(name string, links []link.InterfaceRecord) string {
	n := slices.IndexFunc(links, func(l link.InterfaceRecord) bool { return l.Name == name })
	switch {
	case n < 0:
		return "there is no interface " + name
	case link.Represents(links[n].PortName):
		return name + " is a representor"
	case links[n].Info.Kind != "":
		return name + " is a " + links[n].Info.Kind
	}
	return name + " is the interface of no device"
}
