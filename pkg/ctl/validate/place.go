package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A spot is where a value stands in a text. A value with a key stands where its key does.
type spot struct {
	line, column int              // from 1; a column is a character
	inner        map[string]*spot // by what their paths have more than this one's: ".plugins", "[1]"
	block        int              // the line of the "|" above a literal block of YAML; 0 = the value is no such block
}

// spots are those of the values in a text that decode understands.
func spots(text []byte) *spot { return spotsOf(text, bytes.Split(text, []byte("\n"))) }

// spotsOf takes the lines of the text to look for literal blocks in; nil = those have none
// inside, as in a block.
func spotsOf(text []byte, lines [][]byte) *spot {
	if begin := bytes.TrimSpace(text); len(begin) > 0 && (begin[0] == '{' || begin[0] == '[') {
		return newRuler(text).value()
	}
	var document yaml.Node
	if yaml.Unmarshal(text, &document) != nil || len(document.Content) == 0 {
		return &spot{line: 1, column: 1}
	}
	return yamlSpot(document.Content[0], lines)
}

// find follows a path, without its "$", as far as it goes: of what is missing it is the
// place where it should be.
func (s *spot) find(path string) *spot {
	for n := 1; n <= len(path); n++ {
		if n < len(path) && path[n] != '.' && path[n] != '[' {
			continue
		}
		if next := s.inner[path[:n]]; next != nil {
			return next.find(path[n:])
		}
	}
	return s
}

// place gives findings their lines and columns. One that has a line already has that of the
// text inside a string.
func (p part) place(findings []Finding) {
	for n := range findings {
		f := &findings[n]
		at, within := p.spots().find(p.path+strings.TrimPrefix(f.Path, "$")), f.Line
		f.Line, f.Column = p.above+at.line, at.column
		if at.block > 0 && within > 0 {
			f.Line, f.Column = p.above+at.block+within, 0
		}
	}
}

// ruler reads JSON, and knows the line of what it has read.
type ruler struct {
	dec          *json.Decoder
	text         []byte
	line, column int // of past, up to where they are counted
	past         int
	failed       bool
	path         []string // of the value that is read, a step for each level
	repeated     []member
}

// maxRepeated is how many repeated keys are told of one text: each has a path as long as it is deep.
const maxRepeated = 100

// member is a key of an object.
type member struct{ path, name string }

func newRuler(text []byte) *ruler {
	return &ruler{dec: json.NewDecoder(bytes.NewReader(text)), text: text, line: 1, column: 1}
}

// value reads one value. It is at most as deep as encoding/json allows, 10000.
func (r *ruler) value() *spot {
	s := &spot{inner: map[string]*spot{}}
	s.line, s.column = r.next()
	token, err := r.dec.Token()
	r.failed = r.failed || err != nil
	for n := 0; token == json.Delim('[') && !r.failed && r.dec.More(); n++ {
		index := fmt.Sprintf("[%d]", n)
		s.inner[index] = r.below(index)
	}
	times := map[string]int{}
	for token == json.Delim('{') && !r.failed && r.dec.More() {
		line, column := r.next()
		key, _ := r.dec.Token()
		name, _ := key.(string)
		here := at("", name)
		if times[name]++; times[name] == 2 && len(r.repeated) < maxRepeated {
			r.repeated = append(r.repeated, member{strings.Join(r.path, "") + here, name})
		}
		inner := r.below(here)
		inner.line, inner.column = line, column
		s.inner[here] = inner
	}
	if token == json.Delim('[') || token == json.Delim('{') {
		_, _ = r.dec.Token() // its end
	}
	return s
}

// below reads the value of a step, an index or a key, from the one that is read.
func (r *ruler) below(step string) *spot {
	r.path = append(r.path, step)
	s := r.value()
	r.path = r.path[:len(r.path)-1]
	return s
}

// repeatedKeys finds keys that an object has more than once: parsers differ in which one
// they take (RFC 8259, section 4).
func (s *sheet) repeatedKeys(path string, data json.RawMessage) {
	r := newRuler(data)
	r.value()
	for _, m := range r.repeated {
		s.wrong(path+m.path, quote(m.name), "the key is given more than once: leave one; parsers differ in which they take")
	}
}

// next is where the next token begins.
func (r *ruler) next() (line, column int) {
	from := int(r.dec.InputOffset())
	from += len(r.text[from:]) - len(bytes.TrimLeft(r.text[from:], " \t\r\n,:"))
	passed := r.text[r.past:from]
	if n := bytes.LastIndexByte(passed, '\n'); n >= 0 {
		r.line += bytes.Count(passed, []byte("\n"))
		passed, r.column = passed[n+1:], 1
	}
	r.column += utf8.RuneCount(passed)
	r.past = from
	return r.line, r.column
}

// yamlSpot is the spot of a node. What stands elsewhere, by an alias or a merge, has none.
func yamlSpot(node *yaml.Node, lines [][]byte) *spot {
	s := &spot{line: node.Line, column: node.Column, inner: map[string]*spot{}}
	switch node.Kind {
	case yaml.SequenceNode:
		for n, child := range node.Content {
			s.inner[fmt.Sprintf("[%d]", n)] = yamlSpot(child, lines)
		}
	case yaml.MappingNode:
		for pair := range slices.Chunk(node.Content, 2) {
			member := yamlSpot(pair[1], lines)
			member.line, member.column = pair[0].Line, pair[0].Column
			s.inner[at("", pair[0].Value)] = member
		}
	case yaml.ScalarNode:
		if node.Style&yaml.LiteralStyle != 0 && lines != nil {
			s.block, s.inner = node.Line, blockSpots(node, lines)
		}
	}
	return s
}

// blockSpots are those of the values in a literal block, which stands indented below its
// node.
func blockSpots(node *yaml.Node, lines [][]byte) map[string]*spot {
	content := strings.TrimLeft(node.Value, "\n")
	row := node.Line + len(node.Value) - len(content) // of lines, from 0: the first one of the content
	if row >= len(lines) {
		return nil
	}
	first, _, _ := strings.Cut(content, "\n")
	indent := max(0, len(bytes.TrimSuffix(lines[row], []byte("\r")))-len(first))
	inner := spotsOf([]byte(node.Value), nil).inner
	shift(inner, node.Line, indent)
	return inner
}

func shift(spots map[string]*spot, lines, columns int) {
	for _, s := range spots {
		s.line, s.column = s.line+lines, s.column+columns
		shift(s.inner, lines, columns)
	}
}
