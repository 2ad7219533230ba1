// Package config parses the network configuration that a CNI runtime passes on standard input, and the settings
// of the node.
//
// Parse collects the problems of a configuration instead of failing. ADD refuses the first one, but DEL must
// still clean up after a configuration that ADD refused.
package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/devinfo/pci"
)

// Config is one plugin configuration (CNI SPEC.md section 1) with devinfo's own keys.
type Config struct {
	CNIVersion   string // "0.1.0" if the configuration has none
	Name         string // name of the network
	Type         string // name of this plugin
	PrevResult   json.RawMessage
	Runtime      map[string]json.RawMessage // runtimeConfig, which delegates get too
	Args         map[string]json.RawMessage // args, which delegates get too
	Capabilities map[string]bool

	InfoFile          string    // runtimeConfig.CNIDeviceInfoFile
	DeviceIDs         []NamedID // the IDs that are set, in this order: runtimeConfig.deviceID, deviceID, pciBusID
	DeviceID          string    // the first of DeviceIDs
	PCIBusID          string    // pciBusID, which delegates get
	ResourceName      string
	DeviceInfo        json.RawMessage // declared device information, with unexpanded placeholders
	AutoFile          bool            // deviceInfoFile: "auto"
	Delegates         []Delegate
	Strict            bool
	FollowLower       bool // default true
	SubfunctionParent bool
	CDI               *CDI // nil = write no CDI spec

	// Valid is cni.dev/valid-attachments; nil if it is absent, null or malformed.
	Valid []types.GCAttachment

	Idle        []string     // keys without an effect, because the configuration has delegates
	Unknown     []UnknownKey // at most the first 10
	MoreUnknown int          // number of further unknown keys
	Problems    []*Problem   // at most the first 10
}

// NamedID is a device ID and its key. The journal contains it as JSON.
type NamedID struct {
	Key string `json:"key"`
	ID  string `json:"id"`
}

// most limits the messages about one configuration, because its author need not administer the node.
const most = 10

type Delegate struct {
	Key  string // "delegates[0]"
	Type string
	Raw  json.RawMessage
}

// A Problem is a known key with an unsupported value.
type Problem struct{ Key, Value, Want string }

func (p *Problem) Error() string {
	return fmt.Sprintf("%s: %s is not supported: want %s", p.Key, clip([]byte(p.Value)), p.Want)
}

// An UnknownKey is a key that neither CNI nor devinfo defines.
type UnknownKey struct{ Key, Nearest string } // Nearest "" = none resembles it

func (u UnknownKey) String() string {
	return fmt.Sprintf("key %q of the network configuration is not known%s", clip([]byte(u.Key)), NearestKnown(u.Nearest))
}

// NoEffectWithDelegates describes what is wrong with a key in Idle.
const NoEffectWithDelegates = "has no effect together with delegates: move it into the delegate that needs it"

// Warnings returns one line for each idle or unknown key, and one with the number of further unknown keys.
func (c *Config) Warnings() (lines []string) {
	for _, key := range c.Idle {
		lines = append(lines, fmt.Sprintf("key %q of the network configuration %s", key, NoEffectWithDelegates))
	}
	for _, u := range c.Unknown {
		lines = append(lines, u.String())
	}
	if c.MoreUnknown > 0 {
		lines = append(lines, fmt.Sprintf("%d more keys of the network configuration are not known", c.MoreUnknown))
	}
	return lines
}

// cniKeys are the keys of the runtime, and keys that all plugins of a chain share.
var cniKeys = []string{
	"cniVersion", "cniVersions", "name", "type", "args", "ipMasq", "ipam", "dns", "prevResult", "runtimeConfig", "capabilities",
	"cni.dev/valid-attachments", "cni.dev/attachments", "disableCheck", "disableGC",
}

// CDI is the key "cdi": the CDI spec for ADD to write. Its strings contain unexpanded placeholders.
type CDI struct {
	Kind      string // vendor/class; "" = devinfo's own
	Name      string // name of the device; "" = derived from the container ID and interface name
	SocketDir string // the socket's directory on the host; "" = same path as in the container
}

// Parse parses a configuration. It fails only if data is not a JSON object.
func Parse(data []byte) (*Config, error) {
	var raw map[string]json.RawMessage
	err := json.Unmarshal(data, &raw)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); other || err == nil && raw == nil {
		err = fmt.Errorf("must be an object, not %s", clip(bytes.TrimSpace(data)))
	}
	if err != nil {
		return nil, fmt.Errorf("network configuration: %w", err)
	}
	c := &Config{FollowLower: true}
	r := reader{raw: raw}
	if levels := Levels(data); levels > MostLevels {
		r.problems = append(r.problems, &Problem{"network configuration", fmt.Sprintf("JSON nested %d levels deep", levels), fmt.Sprintf("at most %d", MostLevels)})
	}
	r.decode("cniVersion", &c.CNIVersion, text)
	c.CNIVersion = cmp.Or(c.CNIVersion, "0.1.0")
	r.decode("name", &c.Name, text)
	r.decode("type", &c.Type, text)
	c.PrevResult = r.object("prevResult")
	r.decode("capabilities", &c.Capabilities, `an object of booleans, {"CNIDeviceInfoFile": true}`)
	r.decode("runtimeConfig", &c.Runtime, "an object")
	r.decode("args", &c.Args, "an object")
	c.readValid(&r)
	ofCNI := r.seen
	c.readDevice(&r)
	r.decode("strict", &c.Strict, boolean)
	r.decode("followLower", &c.FollowLower, boolean)
	r.decode("subfunctionParent", &c.SubfunctionParent, boolean)
	c.readDelegates(&r)
	cdi := c.readCDI(&r)
	c.Problems = r.problems[:min(most, len(r.problems))]
	c.noteUnknown("", raw, append(slices.Clone(cniKeys), r.seen[len(ofCNI):]...))
	c.noteUnknown(cdi.prefix, cdi.raw, cdi.seen)
	return c, nil
}

// readValid sets Valid only if the whole list is valid, because GC deletes every attachment that is not in it.
func (c *Config) readValid(r *reader) {
	const key, want = "cni.dev/valid-attachments", `a list of {"containerID": "…", "ifname": "…"}`
	var list []types.GCAttachment
	before := len(r.problems)
	r.decode(key, &list, want)
	switch {
	case len(r.problems) > before:
	case slices.ContainsFunc(list, func(v types.GCAttachment) bool { return v.ContainerID == "" || v.IfName == "" }):
		r.problem(key, want)
	default:
		c.Valid = list
	}
}

func (c *Config) readDevice(r *reader) {
	runtime := reader{raw: c.Runtime, prefix: "runtimeConfig."}
	runtime.decode("CNIDeviceInfoFile", &c.InfoFile, text)
	id := func(r *reader, key string) (id string) {
		if r.decode(key, &id, text); id == "" {
			return ""
		}
		c.DeviceIDs = append(c.DeviceIDs, NamedID{r.prefix + key, id})
		c.DeviceID = c.DeviceIDs[0].ID
		if want := wantID(id); want != "" {
			r.problem(key, want)
		}
		return id
	}
	id(&runtime, "deviceID")
	r.problems = append(r.problems, runtime.problems...)
	id(r, "deviceID")
	c.PCIBusID = id(r, "pciBusID")
	// The name of the device plugin's file begins with the resource name, and a file name must not begin with a dot.
	if r.decode("resourceName", &c.ResourceName, text); strings.HasPrefix(c.ResourceName, ".") {
		r.problem("resourceName", "a resource such as vendor.example/name")
	}
	c.DeviceInfo = r.object("deviceInfo")
	var where string
	r.decode("deviceInfoFile", &where, text)
	if c.AutoFile = where == "auto"; where != "" && !c.AutoFile {
		r.problem("deviceInfoFile", `"auto"`)
	}
}

// wantID describes the right spelling of a device ID that is nearly a name or an address; "" = the ID is right. It would
// otherwise count as an opaque ID, and ADD would find no device.
func wantID(id string) string {
	trimmed := strings.TrimSpace(id)
	_, err := pci.Parse(id)
	_, short := pci.Parse("0000:" + id)
	switch {
	case trimmed != id:
		return fmt.Sprintf("no blank at the beginning or the end, such as %q", trimmed)
	case short == nil:
		return fmt.Sprintf("a PCI address with its domain, such as %q", "0000:"+id)
	case err != nil && strings.Contains(id, ":") && strings.Contains(id, ".") && strings.Trim(id, "0123456789abcdefABCDEF:.") == "":
		return "a PCI address dddd:BB:DD.f, in which DD is at most 1f and f at most 7"
	}
	return ""
}

// mostDelegates limits the plugins that one configuration runs.
const mostDelegates = 32

func (c *Config) readDelegates(r *reader) {
	var list []json.RawMessage
	r.decode("delegates", &list, "a list of plugin configurations")
	if len(list) > mostDelegates {
		r.problems = append(r.problems, &Problem{"delegates", fmt.Sprintf("a list of %d plugin configurations", len(list)), fmt.Sprintf("at most %d", mostDelegates)})
		list = list[:mostDelegates]
	}
	for n, raw := range list {
		key := fmt.Sprintf("delegates[%d]", n)
		child := reader{prefix: key + "."}
		if err := json.Unmarshal(raw, &child.raw); err != nil || child.raw == nil {
			r.problems = append(r.problems, &Problem{key, clip(raw), "a plugin configuration, an object"})
			continue
		}
		var name string
		child.decode("type", &name, text)
		child.refuseLookalikes(given...)
		if len(child.problems) == 0 && (name == "" || strings.Contains(name, "/")) {
			child.problems = []*Problem{{key + ".type", fmt.Sprintf("%q", name), "the name of a CNI plugin"}}
		}
		if r.problems = append(r.problems, child.problems...); len(child.problems) == 0 {
			c.Delegates = append(c.Delegates, Delegate{key, name, raw})
		}
	}
	for _, key := range []string{"ipam", "dns", "ipMasq"} {
		if v := string(r.raw[key]); len(list) > 0 && v != "" && v != "null" && v != "{}" && v != "false" {
			c.Idle = append(c.Idle, key)
		}
	}
}

// readCDI reads true, false or an object. It returns the reader of the object.
func (c *Config) readCDI(r *reader) (object reader) {
	const key, want = "cdi", `true, or an object {"kind": "vendor.example/class", "name": "{podUID}-{ifName}", "socketDir": "/run/vhost-user/{podUID}"}`
	raw := r.value(key)
	if raw == nil || string(raw) == "false" {
		return object
	}
	object.prefix = key + "."
	if string(raw) != "true" && json.Unmarshal(raw, &object.raw) != nil {
		r.problem(key, want)
		return reader{}
	}
	c.CDI = &CDI{}
	object.decode("kind", &c.CDI.Kind, text)
	object.decode("name", &c.CDI.Name, text)
	object.decode("socketDir", &c.CDI.SocketDir, text)
	r.problems = append(r.problems, object.problems...)
	return object
}

// A reader reads typed values from a JSON object. It records the keys, and a problem for each value of a wrong type.
type reader struct {
	raw      map[string]json.RawMessage
	prefix   string
	seen     []string
	problems []*Problem
}

func (r *reader) value(key string) json.RawMessage {
	r.seen = append(r.seen, key)
	if v := r.raw[key]; string(v) != "null" {
		return v
	}
	return nil
}

// What is wanted as the value of most keys, in words.
const text, boolean = "a string", "true or false"

func (r *reader) decode(key string, into any, want string) {
	if v := r.value(key); v != nil && json.Unmarshal(v, into) != nil {
		r.problem(key, want)
	}
}

func (r *reader) object(key string) json.RawMessage {
	v := r.value(key)
	if v != nil && v[0] != '{' {
		r.problem(key, "an object")
		return nil
	}
	return v
}

// refuseLookalikes refuses keys that differ from the given ones only in letter case. Parsers that ignore case
// would read another plugin from them than devinfo does.
func (r *reader) refuseLookalikes(keys ...string) {
	for have := range r.raw {
		for _, key := range keys {
			if have != key && strings.EqualFold(have, key) && len(r.problems) < most {
				r.problem(have, fmt.Sprintf("the key %q, in this spelling only", key))
			}
		}
	}
}

func (r *reader) problem(key, want string) {
	r.problems = append(r.problems, &Problem{r.prefix + key, clip(r.raw[key]), want})
}

func clip(raw json.RawMessage) string {
	const longest = 120
	if len(raw) > longest {
		return strings.ToValidUTF8(string(raw[:longest]), "") + "…"
	}
	return string(raw)
}

// noteUnknown adds the keys of object that are not in known to Unknown, sorted.
func (c *Config) noteUnknown(prefix string, object map[string]json.RawMessage, known []string) {
	var keys []string
	for key := range object {
		if !slices.Contains(known, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	shown := min(most-len(c.Unknown), len(keys))
	for _, key := range keys[:shown] {
		near := Nearest(key, known)
		if near != "" {
			near = prefix + near
		}
		c.Unknown = append(c.Unknown, UnknownKey{prefix + key, near})
	}
	c.MoreUnknown += len(keys) - shown
}
