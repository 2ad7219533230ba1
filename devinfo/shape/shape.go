// Package shape measures the width and depth of JSON texts. It is internal to this project, and its interface
// may change.
package shape

// MostLevels is the limit on nesting in JSON from outside. Go's decoder reads 10,000 levels, but the journal
// nests such texts in its own entries and must be able to read them again.
const MostLevels = 100

// Of returns the number of members of a JSON object and the nesting levels of the text. It returns 0 members
// for an object with one or none. The text must be valid JSON.
func Of(text []byte) (members, levels int) {
	level, quoted := 0, false
	for n := 0; n < len(text); n++ {
		switch c := text[n]; {
		case quoted && c == '\\':
			n++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			level++
			levels = max(levels, level)
		case c == '}' || c == ']':
			level--
		case c == ',' && level == 1:
			members = max(members, 1) + 1
		}
	}
	return members, levels
}
