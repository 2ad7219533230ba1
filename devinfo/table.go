package devinfo

import (
	"encoding/json"
	"slices"
	"strings"
)

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
	pick  pick

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

// mapOf returns the table of the n-th field, or nil if the map is absent or the field is a string.
func (t *table) mapOf(n int) *table {
	if t.fields[n].sub == nil {
		return nil
	}
	return t.fields[n].sub(false)
}

// stringOf returns the value of the n-th field, or "" if it is absent or a map.
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

// addRaw copies all values of src into dst, replacing existing ones.
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
