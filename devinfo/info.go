package devinfo

import (
	"encoding/json"
	"slices"
)

// Type is the kind of a device (section 3.1.1).
type Type string

// The device types. Each is also the key of the map that the type requires.
const (
	TypePCI       Type = "pci"
	TypeVDPA      Type = "vdpa"
	TypeVhostUser Type = "vhost-user"
	TypeMemif     Type = "memif"
)

// Info is one device-info map (section 3.1). An empty string or nil map is an absent key.
type Info struct {
	Type      Type       // "type": required, 3.1.1
	Version   string     // "version": required, "MAJOR.MINOR.PATCH", 3.1.2
	PCI       *PCI       // "pci": required when Type is TypePCI, 3.1.3
	VDPA      *VDPA      // "vdpa": required when Type is TypeVDPA, 3.1.4
	VhostUser *VhostUser // "vhost-user": required when Type is TypeVhostUser, 3.1.5
	Memif     *Memif     // "memif": required when Type is TypeMemif, 3.1.6

	Extra     map[string]json.RawMessage // keys that the specification does not name
	malformed map[string]json.RawMessage // known keys whose value has the wrong JSON type
}

// Clone returns a deep copy. The clone of nil is nil.
func (i *Info) Clone() *Info {
	if i == nil {
		return nil
	}
	c := new(Info)
	c.table().copyFrom(i.table())
	return c
}

// MarshalJSON returns the result of [Info.Encode]. The error is always nil.
func (i Info) MarshalJSON() ([]byte, error) { return i.Encode(), nil }

// UnmarshalJSON calls [Parse], and returns its errors. JSON null leaves i unchanged, as usual in encoding/json, and so does an
// error.
func (i *Info) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	parsed, err := Parse(text)
	if err == nil {
		*i = *parsed
	}
	return err
}

// A Device is the map of one device type: [*PCI], [*VDPA], [*VhostUser] or [*Memif].
type Device interface{ table() *table }

// Device returns the map that i's type requires; use a type switch on it. It returns nil if the map is absent,
// the type is unknown, or i is nil.
func (i *Info) Device() Device {
	switch {
	case i == nil:
	case i.Type == TypePCI && i.PCI != nil:
		return i.PCI
	case i.Type == TypeVDPA && i.VDPA != nil:
		return i.VDPA
	case i.Type == TypeVhostUser && i.VhostUser != nil:
		return i.VhostUser
	case i.Type == TypeMemif && i.Memif != nil:
		return i.Memif
	}
	return nil
}

// Texts returns the string fields of i's Device by key, including strings in its Extra.
func (i *Info) Texts() map[string]string {
	texts, d := map[string]string{}, i.Device()
	if d == nil {
		return texts
	}
	t := d.table()
	for n, f := range t.fields {
		if s := t.stringOf(n); s != "" {
			texts[f.key] = s
		}
	}
	for key, raw := range *t.extra {
		var s string
		if _, like := t.like(key); !like && json.Unmarshal(raw, &s) == nil {
			texts[key] = s
		}
	}
	return texts
}

// Maps returns the types whose map is present, in the specification's order, including maps that i's type does
// not require.
func (i *Info) Maps() (types []Type) {
	t := i.table()
	for n, f := range t.fields {
		if t.mapOf(n) != nil {
			types = append(types, Type(f.key))
		}
	}
	return types
}

// Keys returns the keys that the specification defines in the map of a type, or at the top level if the type is
// "". It returns nil for an unknown type.
func Keys(of Type) (keys []string) {
	t := new(Info).table()
	if of != "" {
		n := slices.IndexFunc(t.fields, func(f field) bool { return f.sub != nil && f.key == string(of) })
		if n < 0 {
			return nil
		}
		t = t.fields[n].sub(true)
	}
	for _, f := range t.fields {
		keys = append(keys, f.key)
	}
	return keys
}

// table returns the table of i, or of an empty Info if i is nil.
func (i *Info) table() *table {
	if i == nil {
		i = new(Info)
	}
	return &table{&i.Extra, &i.malformed, []field{
		{key: "type", section: "3.1.1", required: true, value: (*string)(&i.Type), pick: declaredExistingFound,
			check: oneOf(string(TypePCI), string(TypeVDPA), string(TypeVhostUser), string(TypeMemif))},
		{key: "version", section: "3.1.2", required: true, value: &i.Version, pick: pickVersion, check: isVersion},
		{key: "pci", section: "3.1.3", required: true, sub: sub(&i.PCI, (*PCI).table)},
		{key: "vdpa", section: "3.1.4", required: true, sub: sub(&i.VDPA, (*VDPA).table)},
		{key: "vhost-user", section: "3.1.5", required: true, sub: sub(&i.VhostUser, (*VhostUser).table)},
		{key: "memif", section: "3.1.6", required: true, sub: sub(&i.Memif, (*Memif).table)},
	}}
}
