// Package shape tells how wide and how deep JSON is. The library and the programs of this project
// have it in common; it may change as they need it.
package shape

// MostLevels is how many levels a text from outside may have. Go's decoder reads 10,000, and the
// journal keeps such texts some levels down in its entries: an entry with more could not be read.
const MostLevels = 100

// Of returns how many members a JSON object has (0 if it has one or none), and how many levels
// the text has, which must be valid JSON.
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
