package devinfo

import "cmp"

// Merge combines three layers of device information. In a CNI ADD, existing is the content of the device-info file,
// found holds the facts read from the node, and declared is deviceInfo of the network configuration. Any layer may be
// nil; if all are nil, Merge returns nil. The arguments stay unchanged, and the result shares no memory with them.
//
// Merge decides key by key: a declared value wins over a found value, and a found value wins over an existing
// one. The exceptions are:
//
//   - type: declared, else existing, else found.
//   - vhost-user's mode, memif's mode and role: existing, else declared, else found. Readers disagree on whose
//     side a mode names, so Merge keeps a file's value.
//   - path of vhost-user and memif: declared, else existing, else found.
//   - version: existing if it is well-formed, else [SpecVersion]. An older version becomes SpecVersion only if
//     the result has a representor-device, the one key that 1.1.0 added.
//   - a map that does not belong to the resulting type: existing alone.
//   - a value of the wrong JSON type: existing alone, unless another layer has a valid one.
//   - an unknown key that equals a known one except for letter case: dropped.
//
// The devinfo plugin takes the layers from the file, from package discovery and from its request, see find in
// plugins/devinfo/decide.go.
func Merge(existing, found, declared *Info) *Info {
	if existing == nil && found == nil && declared == nil {
		return nil
	}
	out := new(Info)
	out.table().copyFrom(existing.table())
	t, f, d := out.table(), found.table(), declared.table()
	t.merge(f, d)
	for n, field := range t.fields {
		if field.sub == nil || field.key != string(out.Type) {
			continue
		}
		if subFound, subDeclared := f.mapOf(n), d.mapOf(n); subFound != nil || subDeclared != nil {
			field.sub(true).merge(subFound, subDeclared)
			dropRaw(t.malformed, field.key)
		}
	}
	t.dropLikes()
	out.completeVersion()
	return out
}

// completeVersion sets a missing version, and raises one that is older than a key.
func (i *Info) completeVersion() {
	hasRepresentor := i.PCI != nil && i.PCI.Representor != "" || i.VDPA != nil && i.VDPA.Representor != ""
	v, ok := parseVersion(i.Version)
	if _, malformed := i.malformed["version"]; i.Version == "" && !malformed || ok && hasRepresentor && compareWithSpec(v) < 0 {
		i.Version = SpecVersion
	}
}

// merge applies the strings and unknown keys of two layers to t. A layer may be nil.
func (t *table) merge(found, declared *table) {
	for n, f := range t.fields {
		if f.value == nil {
			continue
		}
		v := cmp.Or(declared.stringOf(n), found.stringOf(n), *f.value)
		if f.pick != nil {
			v = f.pick(*f.value, found.stringOf(n), declared.stringOf(n))
		}
		if v != "" {
			*f.value = v
			dropRaw(t.malformed, f.key)
		}
	}
	for _, layer := range []*table{found, declared} {
		if layer != nil {
			addRaw(t.extra, *layer.extra)
		}
	}
}

// A pick chooses one of the three layers' values of a key, for keys with another order than declared, found, existing.
type pick func(existing, found, declared string) string

func declaredExistingFound(existing, found, declared string) string {
	return cmp.Or(declared, existing, found)
}
func existingDeclaredFound(existing, found, declared string) string {
	return cmp.Or(existing, declared, found)
}

func pickVersion(existing, _, _ string) string {
	if _, ok := parseVersion(existing); ok {
		return existing
	}
	return SpecVersion
}
