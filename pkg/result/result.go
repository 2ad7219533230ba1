// Package result edits CNI results (SPEC.md section 5). What a plugin before us wrote is
// passed on as text, unknown keys included; the CNI library converts it only if versions
// differ, and only what must change is touched.
package result

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"
)

// Result is a result in the version that the configuration asks for.
type Result struct {
	version    string
	raw        json.RawMessage // nil = nothing but the version yet
	interfaces []entry
	own        string          // the version that it was given in; "" = none
	text       json.RawMessage // and its text
	given      []entry         // its interfaces: the conversion loses keys
	edited     bool
}

// An entry is one of a result's interfaces: its text, and the keys that matter
// here.
type entry struct {
	raw json.RawMessage
	Interface
}

// Interface is what a result says of one interface.
type Interface struct {
	Name       string `json:"name"`
	Sandbox    string `json:"sandbox"`
	PCIID      string `json:"pciID"`      // from 1.1.0 on
	SocketPath string `json:"socketPath"` // from 1.1.0 on
}

// New returns the empty result of a CNI version.
func New(cniVersion string) *Result { return &Result{version: cniVersion} }

// Parse reads a result and converts it to cniVersion if it has another version. It fails for
// one that is not of its version. A result without a version is taken to have cniVersion.
// Versions 0.1.0 and 0.2.0 have no interfaces and require addresses: a result that cannot be
// converted to them becomes the empty one.
func Parse(raw json.RawMessage, cniVersion string) (*Result, error) {
	own, given, err := decode(raw)
	if err != nil {
		return nil, err
	}
	r := &Result{version: cniVersion, raw: raw, own: own, text: raw, given: given}
	if own == "" {
		r.raw = withKeys(raw, map[string]string{"cniVersion": cniVersion})
	}
	from := cmp.Or(own, cniVersion)
	typed, err := create.Create(from, r.raw)
	if err != nil {
		return nil, fmt.Errorf("result of version %s: %w", from, err)
	}
	if from != cniVersion {
		if err := r.convert(typed); err != nil {
			return nil, err
		}
	} else if r.atLeast("0.3.0") {
		r.interfaces = slices.Clone(given)
	}
	return r, nil
}

// convert takes over a result of another version. The library writes a route without dst so
// that it cannot read it again, and panics at a null in a list: both are refused.
func (r *Result) convert(typed types.Result) (err error) {
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("result of version %s as %s: interfaces, ips or routes has a null", r.own, r.version)
		}
	}()
	after, err := typed.GetAsVersion(r.version)
	if err != nil && r.atLeast("0.3.0") {
		return fmt.Errorf("result of version %s as %s: %w", r.own, r.version, err)
	} else if err != nil {
		r.raw = nil
		return nil
	}
	if r.raw, err = json.Marshal(after); err != nil {
		return err
	}
	if _, err := create.Create(r.version, r.raw); err != nil {
		return fmt.Errorf("result of version %s as %s: %w", r.own, r.version, err)
	}
	if r.atLeast("0.3.0") {
		_, r.interfaces, err = decode(r.raw)
	}
	return err
}

// decode reads what matters here of a result: its version and its interfaces.
func decode(raw json.RawMessage) (cniVersion string, list []entry, err error) {
	var v *struct {
		CNIVersion string            `json:"cniVersion"`
		Interfaces []json.RawMessage `json:"interfaces"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", nil, fmt.Errorf("result: %w", err)
	}
	if v == nil {
		return "", nil, errors.New("result: null instead of an object")
	}
	for n, raw := range v.Interfaces {
		e := entry{raw: raw}
		if err := json.Unmarshal(raw, &e.Interface); err != nil {
			return "", nil, fmt.Errorf("result: interfaces[%d]: %w", n, err)
		}
		list = append(list, e)
	}
	return v.CNIVersion, list, nil
}

// Find returns the interface of that name in the sandbox, with everything that the result
// said before it was converted; if none has exactly that sandbox, the first of that name
// that has any: plugins differ in how they spell the namespace's path. A nil result has
// none.
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

// Identify sets pciID and socketPath on the named interface where they are empty.
// Versions before 1.1.0 have neither.
func (r *Result) Identify(name, sandbox, pciID, socketPath string) {
	n := find(r.interfaces, name, sandbox)
	if n < 0 || !r.atLeast("1.1.0") {
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

// EnsureSandboxed gives the interface of that name the sandbox if the result has no sandboxed
// interface at all, and adds one if it has none of that name: Multus drops the device information
// of several interfaces without a sandbox, and the addresses of one beside an interface that has it.
func (r *Result) EnsureSandboxed(name, sandbox string) {
	if !r.atLeast("0.3.0") || slices.ContainsFunc(r.interfaces, func(e entry) bool { return e.Sandbox != "" }) {
		return
	}
	r.edited = true
	if n := slices.IndexFunc(r.interfaces, func(e entry) bool { return e.Name == name }); n >= 0 {
		e := &r.interfaces[n]
		e.raw, e.Sandbox = withKeys(e.raw, map[string]string{"sandbox": sandbox}), sandbox
		return
	}
	raw := encoded(map[string]string{"name": name, "sandbox": sandbox})
	r.interfaces = append(r.interfaces, entry{raw, Interface{Name: name, Sandbox: sandbox}})
}

// JSON returns the text of the result: byte for byte that of the plugin before us if nothing
// had to change.
func (r *Result) JSON() json.RawMessage {
	if r.raw != nil && !r.edited {
		return r.raw
	}
	top := object(r.raw)
	top["cniVersion"] = encoded(r.version)
	if !r.atLeast("0.3.0") && r.raw == nil {
		top["dns"] = json.RawMessage("{}")
	}
	if len(r.interfaces) > 0 {
		list := make([]json.RawMessage, len(r.interfaces))
		for n, e := range r.interfaces {
			list[n] = e.raw
		}
		top["interfaces"] = encoded(list)
	}
	return encoded(top)
}

// PrintTo writes the result and a newline.
func (r *Result) PrintTo(w io.Writer) error {
	text := r.JSON()
	_, err := w.Write(append(text[:len(text):len(text)], '\n'))
	return err
}

// withKeys sets the keys whose values are not empty.
func withKeys(raw json.RawMessage, set map[string]string) json.RawMessage {
	keys := object(raw)
	for key, value := range set {
		if value != "" {
			keys[key] = encoded(value)
		}
	}
	return encoded(keys)
}

// object gives the keys of an object that Parse has read; none of nil.
func object(raw json.RawMessage) map[string]json.RawMessage {
	keys := map[string]json.RawMessage{}
	_ = json.Unmarshal(raw, &keys)
	return keys
}

// encoded is for strings, and for what object has given: they always encode.
func encoded(v any) json.RawMessage {
	text, _ := json.Marshal(v)
	return text
}

// atLeast compares our version, which the plugin has checked to be one.
func (r *Result) atLeast(other string) bool { return atLeast(r.version, other) }

func atLeast(cniVersion, other string) bool {
	ok, err := version.GreaterThanOrEqualTo(cniVersion, other)
	return err == nil && ok
}
