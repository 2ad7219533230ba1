package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// Document is one of the texts in a file: of several YAML documents, or of a List as
// kubectl prints it.
type Document struct {
	Line int    `json:"line,omitempty"` // where it begins, from 1
	Name string `json:"name,omitempty"` // of an object of Kubernetes: "Pod shop/dpdk-0"
	*Report
}

// CheckAll checks all documents in a text as Check does. It fails with ErrKind only if none
// of them has a known kind.
func (c Checker) CheckAll(text []byte, kind Kind) ([]Document, error) {
	var all []Document
	if c.Classes == nil {
		c.Classes = ClassesIn(text)
	}
	unknown := 0
	for _, d := range parts(text) {
		report, err := c.check(d, kind)
		if err != nil {
			unknown++
			report = &Report{Skipped: "it is of none of the kinds", Findings: []Finding{}}
		}
		all = append(all, Document{Line: d.line(), Name: d.name, Report: report})
	}
	if unknown > 0 && unknown == len(all) {
		return nil, ErrKind
	}
	return all, nil
}

// part is a value in a text.
type part struct {
	data  json.RawMessage
	err   error // why there is none
	above int   // the lines above the document that it is in
	name  string
	path  string       // in the document, without the "$": ".items[3]"
	spots func() *spot // of the document
}

// document is a text in JSON or YAML.
func document(text []byte, above int) part {
	p := part{above: above, spots: sync.OnceValue(func() *spot { return spots(text) })}
	p.data, p.err = decode(text, above)
	return p
}

// parts are those of all documents of a text.
func parts(text []byte) (all []part) {
	for _, d := range split(text) {
		all = append(all, document(d.text, d.above).items()...)
	}
	return all
}

// line is where the part begins in the file.
func (p part) line() int {
	if p.path == "" {
		return p.above + 1
	}
	return p.above + p.spots().find(p.path).line
}

// a chunk is the text of a document, which has this many lines of a file above it.
type chunk struct {
	text  []byte
	above int
}

// split returns the documents of a YAML text that are not empty; JSON is one document. A
// line of dashes inside a block would be indented.
func split(text []byte) (chunks []chunk) {
	if trimmed := bytes.TrimSpace(text); len(text) > Limit || bytes.HasPrefix(trimmed, []byte("{")) || bytes.HasPrefix(trimmed, []byte("[")) {
		return []chunk{{text, 0}}
	}
	var doc []byte
	above, line, content := 0, 0, false
	end := func() {
		if content {
			chunks = append(chunks, chunk{doc, above})
		}
	}
	for row := range bytes.Lines(text) {
		line++
		bare := bytes.TrimRight(row, " \t\r\n")
		if rest, ok := bytes.CutPrefix(bare, []byte("---")); ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t') {
			end()
			doc, above, content = nil, line, false
			if begin := bytes.TrimSpace(rest); len(begin) > 0 && begin[0] != '#' { // "--- {a: b}"
				doc, above, content = append([]byte("   "), append(rest, '\n')...), line-1, true
			}
			continue
		}
		content = content || len(bare) > 0 && bare[0] != '#' && !bytes.Equal(bare, []byte("..."))
		doc = append(doc, row...)
	}
	end()
	if chunks == nil { // nothing at all is for Check to say
		return []chunk{{text, 0}}
	}
	return chunks
}

// items are the objects of a List, or else the document itself.
func (p part) items() []part {
	var object struct {
		Kind  string
		Items []json.RawMessage
	}
	if p.err != nil || p.data[0] != '{' || json.Unmarshal(p.data, &object) != nil { // Check says it
		return []part{p}
	}
	if !strings.HasSuffix(object.Kind, "List") || object.Items == nil {
		p.name = nameOf(p.data)
		return []part{p}
	}
	var list []part
	for n, item := range object.Items { // no List is in a List
		list = append(list, part{data: item, above: p.above, name: nameOf(item), path: fmt.Sprintf(".items[%d]", n), spots: p.spots})
	}
	return list
}

// nameOf is an object of Kubernetes in words; "" is of anything else.
func nameOf(data json.RawMessage) string {
	var object struct {
		Kind     string
		Metadata struct{ Namespace, Name string }
	}
	if json.Unmarshal(data, &object) != nil || object.Kind == "" {
		return ""
	}
	return strings.TrimSpace(object.Kind + " " + strings.TrimPrefix(object.Metadata.Namespace+"/"+object.Metadata.Name, "/"))
}
