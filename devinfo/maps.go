package devinfo

import (
	"encoding/json"
	"slices"
	"strings"
)

// PCI is the map "pci" (section 3.1.3): a PCI function, mostly an SR-IOV VF.
type PCI struct {
	Address     string // "pci-address": required, "dddd:BB:DD.f", 3.1.3.1
	VhostNet    string // "vhost-net": path of the vhost-net character device, 3.1.3.2
	RDMADevice  string // "rdma-device": name in /sys/class/infiniband, or several joined by commas, 3.1.3.3
	PFAddress   string // "pf-pci-address": the VF's physical function (PF), "dddd:BB:DD.f", 3.1.3.4
	Representor string // "representor-device": name of the VF's representor, 3.1.3.5, since specification 1.1.0

	Extra     map[string]json.RawMessage // keys that the specification does not name
	malformed map[string]json.RawMessage
}

func (p *PCI) table() *table {
	return &table{&p.Extra, &p.malformed, []field{
		{key: "pci-address", section: "3.1.3.1", required: true, value: &p.Address, check: isPCIAddress},
		{key: "vhost-net", section: "3.1.3.2", value: &p.VhostNet, check: isPath},
		{key: "rdma-device", section: "3.1.3.3", value: &p.RDMADevice, check: isText},
		{key: "pf-pci-address", section: "3.1.3.4", value: &p.PFAddress, check: isPCIAddress},
		{key: "representor-device", section: "3.1.3.5", value: &p.Representor, check: isText},
	}}
}

// VDPA is the map "vdpa" (section 3.1.4): a device on the kernel's vdpa bus.
type VDPA struct {
	ParentDevice string // "parent-device": required, name in /sys/bus/vdpa/devices, 3.1.4.1
	Driver       string // "driver": required, "vhost" or "virtio", 3.1.4.2
	Path         string // "path": required, absolute path of the vhost or virtio device, 3.1.4.3
	Address      string // "pci-address": the PCI function that carries it, "dddd:BB:DD.f", 3.1.4.4
	PFAddress    string // "pf-pci-address": the PF, if that function is a VF, "dddd:BB:DD.f", 3.1.4.5
	Representor  string // "representor-device": name of the VF's representor, 3.1.4.6, since specification 1.1.0

	Extra     map[string]json.RawMessage // keys that the specification does not name
	malformed map[string]json.RawMessage
}

func (v *VDPA) table() *table {
	return &table{&v.Extra, &v.malformed, []field{
		{key: "parent-device", section: "3.1.4.1", required: true, value: &v.ParentDevice, check: isText},
		{key: "driver", section: "3.1.4.2", required: true, value: &v.Driver, check: oneOf("vhost", "virtio")},
		{key: "path", section: "3.1.4.3", required: true, value: &v.Path, check: isAbsolute},
		{key: "pci-address", section: "3.1.4.4", value: &v.Address, check: isPCIAddress},
		{key: "pf-pci-address", section: "3.1.4.5", value: &v.PFAddress, check: isPCIAddress},
		{key: "representor-device", section: "3.1.4.6", value: &v.Representor, check: isText},
	}}
}

// VhostUser is the map "vhost-user" (section 3.1.5): a vhost-user socket.
type VhostUser struct {
	Mode string // "mode": required, "client" or "server" (the workload creates the socket), 3.1.5.1
	Path string // "path": required, path of the socket as the workload sees it; with devinfo-agent the host's, 3.1.5.2

	Extra     map[string]json.RawMessage // keys that the specification does not name
	malformed map[string]json.RawMessage
}

func (v *VhostUser) table() *table {
	return &table{&v.Extra, &v.malformed, []field{
		{key: "mode", section: "3.1.5.1", required: true, value: &v.Mode, check: oneOf("client", "server"), pick: existingDeclaredFound},
		{key: "path", section: "3.1.5.2", required: true, value: &v.Path, check: isPath, pick: declaredExistingFound},
	}}
}

// Memif is the map "memif" (section 3.1.6): a shared memory packet interface.
type Memif struct {
	Role string // "role": required, "master" (the workload creates the socket) or "slave", 3.1.6.1
	Path string // "path": required, path of the socket as the workload sees it; with devinfo-agent the host's, 3.1.6.2
	Mode string // "mode": required, "ethernet", "ip" or "inject-punt", 3.1.6.3

	Extra     map[string]json.RawMessage // keys that the specification does not name
	malformed map[string]json.RawMessage
}

func (m *Memif) table() *table {
	return &table{&m.Extra, &m.malformed, []field{
		{key: "role", section: "3.1.6.1", required: true, value: &m.Role, check: oneOf("master", "slave"), pick: existingDeclaredFound},
		{key: "path", section: "3.1.6.2", required: true, value: &m.Path, check: isPath, pick: declaredExistingFound},
		{key: "mode", section: "3.1.6.3", required: true, value: &m.Mode, check: oneOf("ethernet", "ip", "inject-punt"), pick: existingDeclaredFound,
			synonyms: map[string]string{"punt": "inject-punt"}},
	}}
}

// MarshalJSON returns the map as [Info.Encode] writes it. The error is always nil.
func (p PCI) MarshalJSON() ([]byte, error) { return p.table().encode(""), nil }

// MarshalJSON is like [PCI.MarshalJSON].
func (v VDPA) MarshalJSON() ([]byte, error) { return v.table().encode(""), nil }

// MarshalJSON is like [PCI.MarshalJSON].
func (v VhostUser) MarshalJSON() ([]byte, error) { return v.table().encode(""), nil }

// MarshalJSON is like [PCI.MarshalJSON].
func (m Memif) MarshalJSON() ([]byte, error) { return m.table().encode(""), nil }

// UnmarshalJSON reads the map as [Parse] does, and fails if text is not one JSON object with each key once. JSON null leaves
// the map unchanged, as usual in encoding/json, and so does an error.
func (p *PCI) UnmarshalJSON(text []byte) error { return readMap(p, (*PCI).table, text) }

// UnmarshalJSON is like [PCI.UnmarshalJSON].
func (v *VDPA) UnmarshalJSON(text []byte) error { return readMap(v, (*VDPA).table, text) }

// UnmarshalJSON is like [PCI.UnmarshalJSON].
func (v *VhostUser) UnmarshalJSON(text []byte) error { return readMap(v, (*VhostUser).table, text) }

// UnmarshalJSON is like [PCI.UnmarshalJSON].
func (m *Memif) UnmarshalJSON(text []byte) error { return readMap(m, (*Memif).table, text) }

func readMap[T any](to *T, describe func(*T) *table, text []byte) error {
	object, err := members(text)
	if err != nil || object == nil {
		return err
	}
	read := new(T)
	describe(read).read(object)
	*to = *read
	return nil
}

// A table describes one JSON object of the format: the whole Info or one of its maps. It points into that
// struct. Parse, Encode, Clone, Merge and Validate all walk tables, so each key is defined in one place.
type table struct {
	extra, malformed *map[string]json.RawMessage
	fields           []field // in the specification's order
}

// A field is one known key. Its value is a string, or a map with its own table.
type field struct {
	key      string
	section  string
	required bool // for a map: required if the type equals the key

	value *string // nil for a map
	check check
	pick  pick // nil = declared, else found, else existing

	synonyms map[string]string // other spellings of values; network-attachment-definition-client writes "punt"

	sub func(create bool) *table // nil for a string; returns nil if the map is absent and create is false
}

// sub returns the function sub of a field whose map is stored at p. describe returns the table of the map.
func sub[T any](p **T, describe func(*T) *table) func(bool) *table {
	return func(create bool) *table {
		if *p == nil {
			if !create {
				return nil
			}
			*p = new(T)
		}
		return describe(*p)
	}
}

func (t *table) mapOf(n int) *table {
	if t.fields[n].sub == nil {
		return nil
	}
	return t.fields[n].sub(false)
}

func (t *table) stringOf(n int) string {
	if t == nil || t.fields[n].value == nil {
		return ""
	}
	return *t.fields[n].value
}

// like returns the field whose key equals key when letter case is ignored. Go's JSON decoder ignores it, so a
// reader in Go would take such a key of Extra for the known one.
func (t *table) like(key string) (f field, ok bool) {
	for _, f := range t.fields {
		if strings.EqualFold(f.key, key) {
			return f, true
		}
	}
	return field{}, false
}

// dropLikes removes keys of Extra that equal a known key except for letter case, in t and its maps.
func (t *table) dropLikes() {
	for key := range *t.extra {
		if _, like := t.like(key); like {
			dropRaw(t.extra, key)
		}
	}
	for n := range t.fields {
		if m := t.mapOf(n); m != nil {
			m.dropLikes()
		}
	}
}

// copyFrom fills the empty t with a deep copy of src.
func (t *table) copyFrom(src *table) {
	addRaw(t.extra, *src.extra)
	addRaw(t.malformed, *src.malformed)
	for n, f := range t.fields {
		if f.value != nil {
			*f.value = src.stringOf(n)
		} else if m := src.mapOf(n); m != nil {
			f.sub(true).copyFrom(m)
		}
	}
}

func addRaw(dst *map[string]json.RawMessage, src map[string]json.RawMessage) {
	for key, value := range src {
		setRaw(dst, key, slices.Clone(value))
	}
}

func setRaw(dst *map[string]json.RawMessage, key string, value json.RawMessage) {
	if *dst == nil {
		*dst = map[string]json.RawMessage{}
	}
	(*dst)[key] = value
}

// dropRaw removes a key. It replaces an empty map by nil, for reflect.DeepEqual.
func dropRaw(dst *map[string]json.RawMessage, key string) {
	delete(*dst, key)
	if len(*dst) == 0 {
		*dst = nil
	}
}
