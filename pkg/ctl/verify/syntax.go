package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// decode makes one JSON value of a text in JSON or YAML.
func decode(text []byte) (json.RawMessage, error) {
	if len(text) > Limit {
		return nil, fmt.Errorf("the text has more than %d MiB", Limit>>20)
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, errors.New("the text is empty")
	}
	if text[0] == '{' || text[0] == '[' {
		return text, jsonError(text)
	}
	if n := documents(text); n > 1 {
		return nil, fmt.Errorf("the text has %d YAML documents: give one of them at a time", n)
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("the text is neither JSON nor YAML: %.200s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return bytes.TrimSpace(data), nil
}

// documents counts the YAML documents that are not empty. A line of dashes inside a
// block would be indented.
func documents(text []byte) (n int) {
	content := false
	for line := range bytes.Lines(append(bytes.Clone(text), "\n---"...)) {
		line = bytes.TrimRight(line, " \r\n")
		switch {
		case bytes.HasPrefix(line, []byte("---")):
			if content {
				n++
			}
			content = false
		case len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("...")):
			content = true
		}
	}
	return n
}

// jsonError says where a text stops being one JSON value; nil = it is valid.
func jsonError(text []byte) error {
	var value any
	err := json.Unmarshal(text, &value)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		before := text[:min(int(syntax.Offset), len(text))]
		line := 1 + bytes.Count(before, []byte("\n"))
		return fmt.Errorf("the text is not JSON: line %d, byte %d: %w", line, syntax.Offset, err)
	}
	return err
}

// repeatedKeys finds keys that an object has more than once: parsers differ in which one
// they take (RFC 8259, section 4).
func (s *sheet) repeatedKeys(path string, data json.RawMessage) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	s.repeatedIn(dec, path)
}

// repeatedIn reads one value, known to be valid, from dec. It is at most as deep as
// encoding/json allows, 10000.
func (s *sheet) repeatedIn(dec *json.Decoder, path string) {
	token, err := dec.Token()
	if err != nil {
		return
	}
	switch token {
	case json.Delim('['):
		for n := 0; dec.More(); n++ {
			s.repeatedIn(dec, fmt.Sprintf("%s[%d]", path, n))
		}
	case json.Delim('{'):
		seen := map[string]int{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return
			}
			name, _ := key.(string) // a key is one
			if seen[name]++; seen[name] == 2 {
				s.wrong(at(path, name), nil, "the key is given more than once, and parsers differ in which one they take")
			}
			s.repeatedIn(dec, at(path, name))
		}
	default:
		return
	}
	_, _ = dec.Token() // the end of the list or object
}
