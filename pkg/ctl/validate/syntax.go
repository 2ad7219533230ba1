package validate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// A syntaxError says why a text is neither JSON nor YAML.
type syntaxError struct {
	line int // in the file; 0 = not known
	what string
}

func (e *syntaxError) Error() string { return e.what }

// decode makes one JSON value of a text in JSON or YAML, which has this many lines of a file
// above it. Its errors are of type *syntaxError.
func decode(text []byte, above int) (json.RawMessage, error) {
	if len(text) > Limit {
		return nil, &syntaxError{0, fmt.Sprintf("the text has more than %d MiB", Limit>>20)}
	}
	trimmed := bytes.TrimSpace(text)
	if len(trimmed) == 0 {
		return nil, &syntaxError{0, "the text is empty"}
	}
	if trimmed[0] == '{' || trimmed[0] == '[' {
		return trimmed, jsonError(text, above)
	}
	if n := len(split(text)); n > 1 {
		return nil, &syntaxError{0, fmt.Sprintf("the text has %d YAML documents: give one of them at a time", n)}
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, yamlError(err, above)
	}
	return bytes.TrimSpace(data), nil
}

var yamlLine = regexp.MustCompile(`\bline ([0-9]+): `)

// yamlError takes the first line from the words of the YAML parser, which tells lines in no
// other way; in the words too they become those of the file.
func yamlError(err error, above int) error {
	first := 0
	text := yamlLine.ReplaceAllStringFunc(strings.Join(strings.Fields(err.Error()), " "), func(found string) string {
		line, _ := strconv.Atoi(yamlLine.FindStringSubmatch(found)[1]) // digits
		first = cmp.Or(first, above+line)
		return fmt.Sprintf("line %d: ", above+line)
	})
	return &syntaxError{first, fmt.Sprintf("the text is neither JSON nor YAML: %.200s", text)}
}

// jsonError says where a text stops being one JSON value; nil = it is valid.
func jsonError(text []byte, above int) error {
	var value any
	err := json.Unmarshal(text, &value)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		before := text[:min(max(int(syntax.Offset)-1, 0), len(text))] // Offset is behind the byte
		line := above + 1 + bytes.Count(before, []byte("\n"))
		return &syntaxError{line, fmt.Sprintf("the text is not JSON: line %d, byte %d: %v", line, syntax.Offset, err)}
	}
	return err
}
