package devinfo

import (
	"encoding/json"
	"slices"
	"strings"
)

// A table describes one JSON object of the format, the whole Info or one of its
// maps, as a view into the struct that holds it. Parse, Encode, Clone, Merge and
// Validate all walk tables, so each key of the specification is written once.
type table struct {
	extra, malformed *map[string]json.RawMessage
	fields           []field // in the specification's order
}

// A field is one known key: a string, or a map with a table of its own.
type field struct {
	key      string
	section  string
	required bool // for a map: when the type is its key

	value *string // nil for a map
	check check
	pick  pick

	sub func(create bool) *table // nil for a string; gives nil when the map is absent and not to be created
}

// sub makes field.sub from the place of the map and its description.
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

// mapOf is the table of the n-th field; nil when it is absent, or no map.
func (t *table) mapOf(n int) *table {
	if t.fields[n].sub == nil {
		return nil
	}
	return t.fields[n].sub(false)
}

// stringOf is the value of the n-th field; "" when it is absent, or no string.
func (t *table) stringOf(n int) string {
	if t == nil || t.fields[n].value == nil {
		return ""
	}
	return *t.fields[n].value
}

// like returns the field whose key is the same but for letter case, by the rule of Go's
// JSON decoder: readers that use it take such a key of Extra for the field's.
func (t *table) like(key string) (f field, ok bool) {
	for _, f := range t.fields {
		if strings.EqualFold(f.key, key) {
			return f, true
		}
	}
	return field{}, false
}

// dropLikes drops such keys, in the maps too.
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

// addRaw puts copies of all values of src into dst, over what is there.
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

// dropRaw leaves no empty map behind, so that equal information is equal to
// reflect.DeepEqual.
func dropRaw(dst *map[string]json.RawMessage, key string) {
	delete(*dst, key)
	if len(*dst) == 0 {
		*dst = nil
	}
}
