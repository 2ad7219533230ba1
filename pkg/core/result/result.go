// Package result edits CNI results (SPEC.md section 5). It passes on the text of the previous plugin's result, unknown
// keys included, and changes only the necessary keys. The CNI library converts the result only if the versions differ.
package result

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/core/config"
)

// Result is a CNI result in the version that the configuration requests.
type Result struct {
	version    string
	raw        json.RawMessage // nil = empty so far
	interfaces []entry
	own        string  // original version; "" = none
	given      []entry // original interfaces, because the conversion loses keys
	edited     bool
}

// An entry is one interface of a result: its text and its parsed keys.
type entry struct {
	raw json.RawMessage
	Interface
}

// Interface holds the keys of one interface that devinfo uses.
type Interface struct {
	Name       string `json:"name"`
	Sandbox    string `json:"sandbox"`
	PCIID      string `json:"pciID"`      // since 1.1.0
	SocketPath string `json:"socketPath"` // since 1.1.0
}

func New(cniVersion string) *Result { return &Result{version: cniVersion} }

// Parse reads a result and converts it to cniVersion if necessary. It fails if the result is invalid in its own
// version. A result without a version is read as cniVersion. Versions 0.1.0 and 0.2.0 have no interfaces and
// require addresses; a result that cannot be converted to them becomes empty.
func Parse(raw json.RawMessage, cniVersion string) (*Result, error) {
	own, given, err := decode(raw)
	if err != nil {
		return nil, err
	}
	r := &Result{version: cniVersion, raw: raw, own: own, given: given}
	if own == "" {
		r.raw = withKeys(raw, map[string]string{"cniVersion": cniVersion})
	}
	from := cmp.Or(own, cniVersion)
	typed, err := create.Create(from, r.raw)
	if err != nil {
		return nil, fmt.Errorf("result of version %s: %w", from, config.InWords(err))
	}
	if from != cniVersion {
		if err := r.convert(typed); err != nil {
			return nil, err
		}
	} else if atLeast(r.version, "0.3.0") {
		r.interfaces = slices.Clone(given)
	}
	return r, nil
}

// convert converts a result of another version. The library writes a route without dst but cannot read it again; convert
// returns an error for it.
func (r *Result) convert(typed types.Result) error {
	after, err := typed.GetAsVersion(r.version)
	if err != nil && !atLeast(r.version, "0.3.0") {
		r.raw = nil
		return nil
	}
	if err == nil {
		r.raw = config.Encode(after)
		_, err = create.Create(r.version, r.raw)
	}
	if err != nil {
		return fmt.Errorf("result of version %s as %s: %w", r.own, r.version, err)
	}
	if atLeast(r.version, "0.3.0") {
		_, r.interfaces, err = decode(r.raw)
	}
	return err
}

// most limits the interfaces of a result and its addresses.
const most = 1024

func decode(raw json.RawMessage) (cniVersion string, list []entry, err error) {
	var v *struct {
		CNIVersion string            `json:"cniVersion"`
		Interfaces []json.RawMessage `json:"interfaces"`
		IPs        json.RawMessage   `json:"ips"`
		Routes     json.RawMessage   `json:"routes"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", nil, fmt.Errorf("result: %w", config.InWords(err))
	}
	if v == nil {
		return "", nil, errors.New("result: null instead of an object")
	}
	var ips, routes []json.RawMessage
	_, _ = json.Unmarshal(v.IPs, &ips), json.Unmarshal(v.Routes, &routes) // the CNI library reports another type
	if max(len(v.Interfaces), len(ips)) > most {
		return "", nil, fmt.Errorf("result: %d interfaces and %d ips, at most %d of each are supported", len(v.Interfaces), len(ips), most)
	}
	for key, list := range map[string][]json.RawMessage{"interfaces": v.Interfaces, "ips": ips, "routes": routes} {
		if n := slices.IndexFunc(list, func(e json.RawMessage) bool { return string(e) == "null" }); n >= 0 { // the library panics at it
			return "", nil, fmt.Errorf("result: %s[%d]: null instead of an object", key, n)
		}
	}
	for n, raw := range v.Interfaces {
		e := entry{raw: raw}
		if err := json.Unmarshal(raw, &e.Interface); err != nil {
			return "", nil, fmt.Errorf("result: interfaces[%d]: %w", n, config.InWords(err))
		}
		list = append(list, e)
	}
	return v.CNIVersion, list, nil
}

// Find returns the interface with that name in the sandbox, as it was before conversion. If no interface has
// exactly that sandbox, it returns the first one with the name and any sandbox, because plugins spell the path
// of the namespace differently. A nil result has no interfaces.
func (r *Result) Find(name, sandbox string) (Interface, bool) {
	if r != nil {
		if n := find(r.given, name, sandbox); n >= 0 {
			return r.given[n].Interface, true
		}
	}
	return Interface{}, false
}

func find(list []entry, name, sandbox string) int {
	first := -1
	for n, e := range list {
		switch {
		case e.Name != name || e.Sandbox == "":
		case e.Sandbox == sandbox:
			return n
		case first < 0:
			first = n
		}
	}
	return first
}

// Has reports whether the result contains the interface, by the rule of Find. If it does, a previous plugin
// created the interface or knows about it. ok is false if the result came in a version before 0.3.0, which has
// no interfaces. A nil result contains none.
func (r *Result) Has(name, sandbox string) (has, ok bool) {
	_, has = r.Find(name, sandbox)
	return has, has || r == nil || r.own == "" || atLeast(r.own, "0.3.0")
}

// Identify sets pciID and socketPath on an interface if they are empty. Versions before 1.1.0 have neither key.
func (r *Result) Identify(name, sandbox, pciID, socketPath string) {
	n := find(r.interfaces, name, sandbox)
	if n < 0 || !atLeast(r.version, "1.1.0") {
		return
	}
	e := &r.interfaces[n]
	before := e.Interface
	e.PCIID, e.SocketPath = cmp.Or(e.PCIID, pciID), cmp.Or(e.SocketPath, socketPath)
	if e.Interface != before {
		e.raw = withKeys(e.raw, map[string]string{"pciID": e.PCIID, "socketPath": e.SocketPath})
		r.edited = true
	}
}

// EnsureSandboxed makes sure that the result has a sandboxed interface. If it has none, EnsureSandboxed sets
// the sandbox of the interface with that name, or adds an interface.
//
// It is needed for Multus, which drops the device information of several interfaces without a sandbox, and the
// addresses of an interface without a sandbox if another one has it.
func (r *Result) EnsureSandboxed(name, sandbox string) {
	if !atLeast(r.version, "0.3.0") || slices.ContainsFunc(r.interfaces, func(e entry) bool { return e.Sandbox != "" }) {
		return
	}
	r.edited = true
	if n := slices.IndexFunc(r.interfaces, func(e entry) bool { return e.Name == name }); n >= 0 {
		e := &r.interfaces[n]
		e.raw, e.Sandbox = withKeys(e.raw, map[string]string{"sandbox": sandbox}), sandbox
		return
	}
	raw := config.Encode(map[string]string{"name": name, "sandbox": sandbox})
	r.interfaces = append(r.interfaces, entry{raw, Interface{Name: name, Sandbox: sandbox}})
}

// JSON returns the text of the result. It is the previous plugin's text, byte for byte, if nothing changed.
func (r *Result) JSON() json.RawMessage {
	if r.raw != nil && !r.edited {
		return r.raw
	}
	top := config.Object(r.raw)
	top["cniVersion"] = config.Encode(r.version)
	if !atLeast(r.version, "0.3.0") && r.raw == nil {
		top["dns"] = json.RawMessage("{}")
	}
	if len(r.interfaces) > 0 {
		list := make([]json.RawMessage, len(r.interfaces))
		for n, e := range r.interfaces {
			list[n] = e.raw
		}
		top["interfaces"] = config.Encode(list)
	}
	return config.Encode(top)
}

func withKeys(raw json.RawMessage, set map[string]string) json.RawMessage {
	keys := config.Object(raw)
	for key, value := range set {
		if value != "" {
			keys[key] = config.Encode(value)
		}
	}
	return config.Encode(keys)
}

// atLeast compares two versions, which the plugin has validated.
func atLeast(cniVersion, other string) bool {
	ok, err := version.GreaterThanOrEqualTo(cniVersion, other)
	return err == nil && ok
}
