package config

// MostLevels is the limit on nesting in JSON from outside. Go's decoder reads 10,000 levels, but the journal nests such
// texts in its own entries and must be able to read them again.
const MostLevels = 100

// Levels returns the nesting levels of a JSON text, which must be valid.
func Levels(text []byte) (levels int) {
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
		}
	}
	return levels
}
