package validate_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// checker checks texts for a node that has three plugins.
var checker = validate.Checker{Find: func(name string) error {
	if slices.Contains([]string{"bridge", "macvlan", "host-device"}, name) {
		return nil
	}
	return fmt.Errorf("there is no %s", name)
}, Versions: func(plugin string) []string {
	if plugin == "bridge" {
		return []string{"0.4.0", "1.0.0"}
	}
	return nil // versions are unknown
}}

func check(c validate.Checker, text string, kind validate.Kind) []validate.Document {
	return checkFile(c, "file.yaml", text, kind)
}

func checkFile(c validate.Checker, file, text string, kind validate.Kind) []validate.Document {
	docs := validate.Parse(file, []byte(text))
	c.Check(docs, kind)
	return docs
}

func one(t *testing.T, c validate.Checker, text string, kind validate.Kind) validate.Document {
	t.Helper()
	docs := check(c, text, kind)
	if len(docs) != 1 {
		t.Fatalf("%d documents in %q", len(docs), text)
	}
	return docs[0]
}

// Each file contains texts, and after each text its findings. What stands before a colon in the name of a text, such as
// "node.json: ", is the name of its file, or else the kind that the user gives.
func TestFindingsMatchGoldenFiles(t *testing.T) {
	goldentest.Archives(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		for n := 0; n+1 < len(archive.Files); n += 2 {
			in, finds := archive.Files[n], &archive.Files[n+1]
			if finds.Name != "finds" {
				t.Fatalf("%s is not followed by what it finds", in.Name)
			}
			file, kind := "file.yaml", ""
			if first, _, named := strings.Cut(in.Name, ": "); slices.Contains(validate.Kinds, first) {
				kind = first
			} else if named && !strings.Contains(first, " ") {
				file = first
			}
			t.Run(in.Name, func(t *testing.T) {
				goldentest.Section(t, finds, lines(checkFile(checker, file, string(in.Data), validate.Kind(kind))))
			})
		}
	})
}

func lines(docs []validate.Document) string {
	var b strings.Builder
	for _, d := range docs {
		kind := string(d.Kind)
		if kind == "" {
			kind = "none"
		}
		fmt.Fprintf(&b, "%d %s\n", d.Line, strings.TrimSpace(kind+" "+d.Name))
		if d.Skipped != "" {
			fmt.Fprintf(&b, "not checked: %s\n", d.Skipped)
		}
		for _, f := range d.Findings {
			level := "error"
			if f.Warning {
				level = "warning"
			}
			fmt.Fprintf(&b, "%d: %s: %s\n", f.Line, level, clierr.Printable(f.String()))
		}
	}
	return b.String()
}

func TestExamplesOfSpecificationsAreValid(t *testing.T) {
	files, err := filepath.Glob("../../../devinfo/testdata/npwg/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, name := range files {
		if d := one(t, checker, difftest.Read(t, name), ""); d.Kind != validate.DeviceInfo || len(d.Findings) > 0 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// FuzzCheck checks that each finding of any text has a rule and a short value. A device-info file must be valid exactly if the
// library accepts it and no key is repeated.
func FuzzCheck(f *testing.F) {
	cases, err := filepath.Glob("testdata/*.txtar")
	difftest.Must(f, err)
	for _, name := range cases {
		archive, err := txtar.ParseFile(name)
		difftest.Must(f, err)
		for _, file := range archive.Files {
			f.Add(file.Data, byte(len(file.Name)))
		}
	}
	f.Add([]byte(strings.Repeat("a: 1\n", 10_000)), byte(0)) // each line repeats the key of all lines before
	kinds := append([]string{""}, validate.Kinds...)
	f.Fuzz(func(t *testing.T, text []byte, kind byte) {
		docs := check(checker, string(text), validate.Kind(kinds[int(kind)%len(kinds)]))
		for _, d := range docs {
			for _, finding := range d.Findings {
				if len([]rune(finding.Value)) > 130 || finding.Rule == "" {
					t.Errorf("%+v", finding)
				}
			}
		}
		if len(docs) != 1 || docs[0].Kind != validate.DeviceInfo || !json.Valid(text) || strings.Contains(lines(docs), "more than once") {
			return
		}
		info, err := devinfo.Parse(text)
		if good := err == nil && len(info.Validate().Errors()) == 0; good != (docs[0].Errors() == 0) {
			t.Errorf("the library says %v, and here it is %+v", err, docs[0])
		}
	})
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	difftest.Must(t, err)
	return data
}

// messages collects the findings and errors for all invalid texts.
type messages struct{ strings.Builder }

// add adds the messages for one text. In said the name of a program precedes the list of its messages.
func (m *messages) add(title string, replace *strings.Replacer, said ...any) {
	var lines string
	for n := 0; n < len(said); n += 2 {
		for _, text := range said[n+1].([]string) {
			if replace != nil {
				text = replace.Replace(text)
			}
			lines += fmt.Sprintf("  %s: %s\n", said[n], strings.ReplaceAll(text, "\n", "\n    "))
		}
	}
	if lines != "" {
		m.WriteString(title + "\n" + lines)
	}
}

// foundIn returns the findings of a document as validate prints them.
func foundIn(d validate.Document) (list []string) {
	for _, f := range d.Findings {
		level := ""
		if f.Warning {
			level = "warning: "
		}
		list = append(list, level+f.String())
	}
	return list
}

// The golden file contains all messages, so that a person can read them together. Each names the error, its place,
// and the remedy. validate finds the same errors as ADD and Prepare.
func TestMessagesMatchGoldenFile(t *testing.T) {
	said := new(messages)
	said.WriteString("# Networks\n")
	validateFindsWhatADDRefuses(t, said)
	said.WriteString("\n# Claims\n")
	validateFindsWhatPrepareRefuses(t, said)
	said.WriteString("\n# Rules of cni-dra-driver\n")
	_, wrong, _ := strings.Cut(difftest.Read(t, "testdata/rules.yaml"), "---\n")
	for _, rule := range strings.Split(strings.TrimSuffix(wrong, "\n"), "\n---\n") {
		text := rule
		if rule[0] == '{' {
			text = "devices: [{ifNames: [eth9], sharing: shared}, " + rule + "]"
		}
		_, err := inventory.ParseRules([]byte(text))
		if err == nil {
			t.Fatalf("%s: no error", rule)
		}
		said.add(rule, nil, "cni-dra-driver", []string{err.Error()})
	}
	goldentest.File(t, "testdata/messages.txt", said.String())
}
