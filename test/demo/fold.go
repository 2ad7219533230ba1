package main

import (
	"bytes"
	"encoding/json"
	"strings"
)

// width is that of a line of folded JSON.
const width = 76

// fold prints JSON for people: what fits stands on one line. Text that is not JSON
// is given back.
func fold(text string) string {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		return text
	}
	return foldAt(b.String(), "", 0)
}

// foldAt folds compact JSON that stands at an indentation, after so much more.
func foldAt(text, at string, after int) string {
	spaced := oneLine(text)
	if len(at)+after+len(spaced) <= width || text == "" || text[0] != '{' && text[0] != '[' {
		return spaced
	}
	var lines []string
	for _, part := range split(text[1:len(text)-1], ',') {
		key := ""
		if text[0] == '{' {
			pair := split(part, ':')
			key, part = pair[0]+": ", strings.Join(pair[1:], ":")
		}
		lines = append(lines, at+"  "+key+foldAt(part, at+"  ", len(key)))
	}
	return text[:1] + "\n" + strings.Join(lines, ",\n") + "\n" + at + text[len(text)-1:]
}

// oneLine puts blanks after commas and colons.
func oneLine(text string) string {
	if text == "" || text[0] != '{' && text[0] != '[' {
		return text
	}
	var parts []string
	for _, part := range split(text[1:len(text)-1], ',') {
		if text[0] == '{' {
			pair := split(part, ':')
			part = pair[0] + ": " + oneLine(strings.Join(pair[1:], ":"))
		} else {
			part = oneLine(part)
		}
		parts = append(parts, part)
	}
	return text[:1] + strings.Join(parts, ", ") + text[len(text)-1:]
}

// split cuts compact JSON at a separator outside of strings, objects and lists.
func split(text string, separator byte) []string {
	var parts []string
	depth, start, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == separator && depth == 0:
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	if text == "" {
		return nil
	}
	return append(parts, text[start:])
}
