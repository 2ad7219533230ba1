package devinfo

import (
	"encoding/json"
	"errors"
	"fmt"

	"devinfo-cni.io/devinfo/shape"
)

// maxSize bounds what is read. A real file has a few hundred bytes.
const maxSize = 1 << 20

// Parse reads one device-info map, complete or partial: [Info.Validate] says what
// is missing or wrong in it. Keys match exactly, null and "" count as absent, and
// memif's mode "punt" is read as "inject-punt". Parse fails only for text that is
// not exactly one JSON object or has one key twice, for more than 1 MiB or 100
// levels, and, with a [*VersionError], for a version (section 3.1.2) with a major
// number other than 1.
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
	members, levels := shape.Of(data)
	if members > len(object) {
		return nil, errors.New("device-info has a duplicate key: readers differ in which value they use")
	}
	if levels > shape.MostLevels {
		return nil, fmt.Errorf("device-info has more than %d levels", shape.MostLevels)
	}
	i := new(Info)
	i.table().read(object)
	if i.Memif != nil && i.Memif.Mode == punt {
		i.Memif.Mode = injectPunt
	}
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

// read fills the empty t from object, whose unknown keys it keeps for its own.
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

// read is false when raw has the wrong JSON type, or is a map with one key twice.
func (f field) read(raw json.RawMessage) bool {
	if f.value != nil {
		return json.Unmarshal(raw, f.value) == nil
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return false
	}
	if members, _ := shape.Of(raw); members > len(object) {
		return false
	}
	f.sub(true).read(object)
	return true
}
