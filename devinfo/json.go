package devinfo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// maxSize limits the size of a device-info file. Real files have a few hundred bytes.
const maxSize = 1 << 20

// Parse reads one device-info map (section 3.1), complete or partial; [Info.Validate] reports missing and wrong values. Keys
// match exactly, null and "" count as absent, and memif's mode "punt" becomes "inject-punt".
//
// Parse fails if data is not exactly one JSON object, has a duplicate key, or exceeds 1 MiB or 100 levels. It
// fails with a [*VersionError] if the major version (section 3.1.2) is not 1.
func Parse(data []byte) (*Info, error) {
	if len(data) > maxSize {
		return nil, errors.New("device-info has more than 1 MiB")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, notOneObject(err)
	}
	if object == nil {
		return nil, errors.New("device-info is null: must be one JSON object (Device Information Specification, 4)")
	}
	members, levels := shape(data)
	if members > len(object) {
		return nil, errDuplicate
	}
	if levels > mostLevels {
		return nil, fmt.Errorf("device-info has more than %d levels", mostLevels)
	}
	i := new(Info)
	i.table().read(object)
	if foreignMajor(i.Version) {
		return nil, &VersionError{i.Version}
	}
	return i, nil
}

func notOneObject(err error) error {
	if kind := new(json.UnmarshalTypeError); errors.As(err, &kind) {
		return fmt.Errorf("device-info is a JSON %s: must be one JSON object (Device Information Specification, 4)", kind.Value)
	}
	if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
		err = fmt.Errorf("byte %d: %w", syntax.Offset, err)
	}
	return fmt.Errorf("device-info is not JSON (Device Information Specification, 4): %w", err)
}

// read fills the empty t from object. It removes known keys from object and keeps the rest as t's unknown keys.
func (t *table) read(object map[string]json.RawMessage) {
	for _, f := range t.fields {
		raw, ok := object[f.key]
		delete(object, f.key)
		if ok && string(raw) != "null" && !f.read(raw) {
			setRaw(t.malformed, f.key, raw)
		}
	}
	if len(object) > 0 {
		*t.extra = object
	}
}

// read returns false if raw has the wrong JSON type, or is a map with a duplicate key.
func (f field) read(raw json.RawMessage) bool {
	if f.value != nil {
		err := json.Unmarshal(raw, f.value)
		if known, ok := f.synonyms[*f.value]; ok {
			*f.value = known
		}
		return err == nil
	}
	object, err := members(raw)
	if err != nil {
		return false
	}
	f.sub(true).read(object)
	return true
}

func members(text []byte) (object map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	if n, _ := shape(text); n > len(object) {
		return nil, errDuplicate
	}
	return object, nil
}

var errDuplicate = errors.New("device-info has a duplicate key: readers differ in which value they use")

// Encode returns the content of a device-info file (section 4): one JSON object, indented by two spaces, with a
// newline at the end. Known keys come first, in the specification's order. The keys of Extra follow, sorted,
// with their values byte for byte. Encode drops an Extra value that is not JSON, and an Extra key that equals a
// known key except for letter case. A nil Info is an empty object.
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
