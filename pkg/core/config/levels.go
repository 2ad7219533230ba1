package config

import "bytes"

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

// NextString returns where the first string of a valid JSON text begins and ends, with its quotes; 0, 0 = it has none.
func NextString(text []byte) (start, end int) {
	if start = bytes.IndexByte(text, '"'); start < 0 {
		return 0, 0
	}
	for end = start + 1; text[end] != '"'; end++ {
		if text[end] == '\\' {
			end++
		}
	}
	return start, end + 1
}
