package devinfo

// mostLevels is the limit on nesting. Go's decoder reads 10,000 levels, but programs nest device information in texts of
// their own and must be able to read these again.
const mostLevels = 100

// shape returns the number of members of a JSON object and the nesting levels of the text. It returns 0 members
// for an object with one or none. The text must be valid JSON.
func shape(text []byte) (members, levels int) {
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
