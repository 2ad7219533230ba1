// Package depth limits how deep JSON from outside may nest. The journal keeps such texts some
// levels down in its entries, and Go's decoder reads 10,000 levels: an entry with more would be
// written, but never read again.
package depth

// Most is how many levels a text from outside may have.
const Most = 100

// Of returns how many levels valid JSON has.
func Of(text []byte) (most int) {
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
			most = max(most, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return most
}
