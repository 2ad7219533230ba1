package devinfo

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// Encode returns the content of a device-info file (section 4): one JSON object, indented by two spaces, with a
// newline at the end. Known keys come first, in the specification's order. The keys of Extra follow, sorted,
// with their values byte for byte. Encode drops an Extra value that is not JSON, and an Extra key that equals a
// known key except for letter case.
func (i *Info) Encode() []byte {
	return append(i.table().encode(""), '\n')
}

func (t *table) encode(indent string) []byte {
	var b bytes.Buffer
	put := func(key string, value []byte) {
		if value == nil {
			return
		}
		separator := ",\n"
		if b.Len() == 0 {
			separator = "{\n"
		}
		b.WriteString(separator + indent + "  ")
		b.Write(quote(key))
		b.WriteString(": ")
		b.Write(value)
	}
	for n, f := range t.fields {
		if m, s := t.mapOf(n), t.stringOf(n); m != nil {
			put(f.key, m.encode(indent+"  "))
		} else if s != "" {
			put(f.key, quote(s))
		} else {
			put(f.key, (*t.malformed)[f.key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(*t.extra)) {
		value := (*t.extra)[key]
		if _, like := t.like(key); !like && json.Valid(value) {
			put(key, value)
		}
	}
	if b.Len() == 0 {
		return []byte("{}")
	}
	b.WriteString("\n" + indent + "}")
	return b.Bytes()
}

// quote is like json.Marshal, but does not escape HTML characters.
func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // encoding a string into memory cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
