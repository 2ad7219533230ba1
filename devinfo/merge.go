package devinfo

import "cmp"

// Merge lays what was found on the node over what a file already held, and what
// the configuration declares over both. Any of the three may be nil; if all are,
// so is the result. The arguments are not changed, and the result shares no
// memory with them.
//
// Key by key declared beats found beats existing, but for these:
//
//   - type: declared, else existing, else found.
//   - vhost-user's mode, memif's mode and role: existing, else declared, else
//     found. Readers disagree on whose side a mode names, so one that stands in
//     a file is never rewritten.
//   - path of vhost-user and memif: declared, else existing, else found.
//   - version: that of existing if it is well-formed, else [SpecVersion]. An
//     older one becomes 1.1.0 only when the result gains a representor-device,
//     the one key that 1.1.0 added.
//   - a map that is not the resulting type's is taken from existing only.
//   - a value of the wrong JSON type is taken from existing only, and gives way
//     to any good one.
//   - a key of Extra that is a known one in other letter case is not taken.
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
		if f, d := f.mapOf(n), d.mapOf(n); f != nil || d != nil {
			field.sub(true).merge(f, d)
			dropRaw(t.malformed, field.key)
		}
	}
	t.dropLikes()
	if olderThanSpec(out.Version) && gainsRepresentor(existing, out) {
		out.Version = SpecVersion
	}
	return out
}

// merge lays the strings and the unknown keys of two layers, nil ones allowed,
// over t.
func (t *table) merge(found, declared *table) {
	for n, f := range t.fields {
		if f.value == nil {
			continue
		}
		if v := f.pick(*f.value, found.stringOf(n), declared.stringOf(n)); v != "" {
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

// A pick chooses among the values that a key has in the three layers.
type pick func(existing, found, declared string) string

func freshest(existing, found, declared string) string { return cmp.Or(declared, found, existing) }
func settled(existing, found, declared string) string  { return cmp.Or(declared, existing, found) }
func fixed(existing, found, declared string) string    { return cmp.Or(existing, declared, found) }

func pickVersion(existing, _, _ string) string {
	if _, ok := parseVersion(existing); ok {
		return existing
	}
	return SpecVersion
}

func gainsRepresentor(before, after *Info) bool {
	hadPCI := before != nil && before.PCI != nil && before.PCI.Representor != ""
	hadVDPA := before != nil && before.VDPA != nil && before.VDPA.Representor != ""
	return !hadPCI && after.PCI != nil && after.PCI.Representor != "" ||
		!hadVDPA && after.VDPA != nil && after.VDPA.Representor != ""
}
