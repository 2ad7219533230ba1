package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Limit is the maximum size of a text in bytes. It is larger than any object in etcd.
const Limit = 4 << 20

// Document is one of the texts in a file: a YAML document, or an item of a List as kubectl
// prints it. [Checker.Check] sets Kind, Skipped and Findings.
type Document struct {
	File     string    `json:"file"`              // "-" is standard input
	Line     int       `json:"line,omitempty"`    // line of its first value in the file, from 1
	Name     string    `json:"name,omitempty"`    // kind, namespace and name of a Kubernetes object: "DeviceClass lan"
	Kind     Kind      `json:"kind"`              // "" = none of ours
	Skipped  string    `json:"skipped,omitempty"` // why there was nothing to check
	Findings []Finding `json:"findings"`

	data   json.RawMessage // nil = the text cannot be read
	yaml   []byte          // the text that data was read from as YAML; nil = it is JSON, or the file's name says that it is YAML
	object object          // zero = it is not of Kubernetes
	node   *yamlnode.Node  // root of the YAML document; nil = the lines are unknown
	path   string          // path of a List's item below node: "items[3]"
}

// An object is what tells an object of Kubernetes from others.
type object struct {
	APIVersion, Kind string
	Metadata         struct {
		Namespace, Name string
		Annotations     map[string]string
	}
}

// ResourceOf returns the resource whose device Multus passes to a NetworkAttachmentDefinition; "" = none.
func ResourceOf(d Document) string { return d.object.Metadata.Annotations[resourceAnnotation] }

// Parse returns the documents in the text of a file, in JSON or YAML. A text that cannot be
// read is one document with a finding.
func Parse(file string, text []byte) []Document {
	whole := Document{File: file, Line: 1, Findings: []Finding{}}
	trimmed := bytes.TrimSpace(text)
	switch {
	case len(text) > Limit:
		whole.wrong("", nil, "the text has more than %d MiB", Limit>>20)
	case len(trimmed) == 0:
		whole.wrong("", nil, "the text is empty")
	case trimmed[0] == '{' || trimmed[0] == '[':
		whole.data = text
		var node yamlnode.Node
		if json.Valid(text) && yamlnode.Unmarshal(text, &node) == nil { // YAML knows fewer escapes than JSON
			whole.node = node.Content[0]
		}
		return whole.items()
	default:
		if !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(file)) && file != "-" {
			whole.yaml = text
		}
		docs, err := whole.readYAML(text)
		if err == nil {
			return docs
		}
		whole.wrong("", nil, "the text must be JSON or YAML: %.200s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return []Document{whole}
}

// readYAML returns the documents of a YAML text. The parser with nodes knows their lines, and the
// other one reads values as Kubernetes does.
func (d Document) readYAML(text []byte) (docs []Document, err error) {
	var nodes []*yamlnode.Node
	for dec := yamlnode.NewDecoder(bytes.NewReader(text)); err == nil; {
		node := new(yamlnode.Node)
		if err = dec.Decode(node); err == nil {
			nodes = append(nodes, node)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	for n, node := range nodes {
		end := len(lines)
		if n+1 < len(nodes) {
			end = nodes[n+1].Line - 1
		}
		chunk := bytes.Join(lines[node.Line-1:end], nil)
		if d.data, err = yaml.YAMLToJSONStrict(chunk); err != nil { // a key is given twice
			above := bytes.Repeat([]byte("\n"), node.Line-1) // so that the error has the line of the file
			_, err = yaml.YAMLToJSONStrict(append(above, chunk...))
			return nil, err
		}
		if string(d.data) == "null" {
			continue // there are only comments
		}
		d.node = node.Content[0]
		d.Line = d.node.Line
		docs = append(docs, d.items()...)
	}
	return docs, nil
}

// items returns the items of a List, or else the document itself.
func (d Document) items() (items []Document) {
	var list struct {
		Kind  string
		Items []json.RawMessage
	}
	_ = json.Unmarshal(d.data, &list) // anything else is no List
	if !strings.HasSuffix(list.Kind, "List") || list.Items == nil {
		d.object, d.Name = identify(d.data)
		return []Document{d}
	}
	for n, item := range list.Items {
		i := d
		i.data, i.path = item, fmt.Sprintf("items[%d]", n)
		i.Line = lineOf(d.node, i.path, d.Line)
		i.object, i.Name = identify(item)
		items = append(items, i)
	}
	return items
}

// identify returns the object in a document, and its kind, namespace and name; "" = there is none.
func identify(data json.RawMessage) (o object, name string) {
	_ = json.Unmarshal(data, &o) // keys of another type stay empty
	if o.Kind == "" {
		return object{}, ""
	}
	return o, strings.TrimSpace(o.Kind + " " + strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/"))
}

// readJSON reports whether the text at path is JSON without repeated keys. Otherwise it adds findings. Parsers differ
// in the value that they use for a repeated key (RFC 8259, section 4).
func (d *Document) readJSON(path string, text []byte) bool {
	var value any
	repeated, err := kjson.UnmarshalStrict(text, &value)
	if is, offset := kjson.SyntaxErrorOffset(err); is {
		line := 1 + bytes.Count(text[:max(0, min(int(offset)-1, len(text)))], []byte("\n"))
		err = fmt.Errorf("line %d, byte %d: %w", line, offset, err)
	}
	if err != nil {
		d.wrong(path, nil, "the text is not JSON: %v", err)
		return false
	}
	for _, r := range repeated {
		if key, is := errors.AsType[kjson.FieldError](r); is {
			d.wrong(strings.ReplaceAll(path+"."+key.FieldPath(), ".[", "["), nil, "the key occurs more than once, and parsers differ in the one they use: keep one")
		}
	}
	return len(repeated) == 0
}

// lineOf returns the line of the value at a path below node. If there is no such value it
// returns the line of the nearest one around it. around is the line of node itself.
func lineOf(node *yamlnode.Node, path string, around int) int {
	if node == nil || path == "" {
		return around
	}
	if node.Kind == yamlnode.SequenceNode {
		var n int
		if _, err := fmt.Sscanf(path, "[%d]", &n); err == nil && n < len(node.Content) {
			_, path, _ = strings.Cut(path, "]")
			return lineOf(node.Content[n], strings.TrimPrefix(path, "."), node.Content[n].Line)
		}
	}
	if node.Kind == yamlnode.MappingNode {
		for pair := range slices.Chunk(node.Content, 2) {
			rest, is := strings.CutPrefix(path, pair[0].Value)
			if is && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				return lineOf(pair[1], strings.TrimPrefix(rest, "."), pair[0].Line)
			}
		}
	}
	return around
}

type Finding struct {
	Path    string `json:"path,omitempty"`  // "spec.config.plugins[1].deviceInfo.type"; "" = the document
	Value   string `json:"value,omitempty"` // the value as JSON; "" = it is missing, or the rule quotes it
	Rule    string `json:"rule"`            // the rule that the value breaks
	Warning bool   `json:"warning,omitempty"`
	Line    int    `json:"line,omitempty"` // of the value in its file, or of the nearest one around it, from 1; 0 = unknown
}

// String returns the finding on one line, without the line number.
func (f Finding) String() string {
	line := f.Rule
	for _, part := range []string{f.Value, f.Path} {
		if part != "" {
			line = part + ": " + line
		}
	}
	return line
}

// Errors returns the number of findings that are not warnings.
func (d *Document) Errors() (n int) {
	for _, f := range d.Findings {
		if !f.Warning {
			n++
		}
	}
	return n
}

// add adds a finding, whose path may begin with a dot, and sets its line.
func (d *Document) add(f Finding) {
	f.Path = strings.TrimPrefix(f.Path, ".")
	if d.node != nil {
		f.Line = lineOf(d.node, strings.Trim(d.path+"."+f.Path, "."), d.node.Line)
	}
	d.Findings = append(d.Findings, f)
}

func (d *Document) wrong(path string, value json.RawMessage, rule string, args ...any) {
	d.find("format", path, value, "rule", fmt.Sprintf(rule, args...))
}

func (d *Document) warn(path string, value json.RawMessage, rule string, args ...any) {
	d.find("format-doubt", path, value, "rule", fmt.Sprintf(rule, args...))
}

// text returns the string that raw holds; "" = it holds none.
func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

// show returns JSON on one line, at most 120 runes of it.
func show(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return ""
	}
	const longest = 120
	shown := []rune(b.String())
	if len(shown) > longest {
		return string(shown[:longest]) + "…"
	}
	return string(shown)
}
