package validate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/validate"
)

// A mark before a key or a value says that there is a finding, or several; the mark is not
// in the text. What is missing is found where it should be.
func TestFindingsStandWhereTheirValuesDo(t *testing.T) {
	for name, text := range map[string]string{
		"JSON with tabs, surrogates and a long line": "\n{\"type\":\t\"pci\",\n\t▶\"ver\": \"\\ud83d\\ude00\", \"version\": \"1.1.0\",\r\n\t\"pci\": {▶\"ä\":1, ▶\"pci-address\": \"3\"}}",
		"YAML": "# a comment\ntype: pci\n▶ver: 1\nversion: 1.1.0\npci:\n  # another\n  ▶pci-address: '3'\n",
		"YAML documents, the second in flow style": `
# nothing but a comment
---
{"type": "pci", "version": "1.1.0", ▶"pci": {}}
--- {"type": "pci", ▶"ver": 1,
  "version": "1.1.0", "pci": {▶"pci-address": "3"}}
`,
		"a List in YAML, with a block, a folded block and a quoted string": `apiVersion: v1
kind: List
items:
- apiVersion: k8s.cni.cncf.io/v1
  kind: NetworkAttachmentDefinition
  metadata: {name: a}
  spec:
    config: |

      {
        "cniVersion": "1.1.0", "name": "a", "plugins": [{"type": "macvlan"},
          ▶{"type": "devinfo"},
          ▶{"type": "devinfo", "deviceInfoFile": "auto", ▶"strict": 5}
        ]
      }
- apiVersion: k8s.cni.cncf.io/v1
  kind: NetworkAttachmentDefinition
  metadata: {name: b}
  spec:
    ▶config: >-
      {"cniVersion": "1.1.0", "name": "b",
       "type": "devinfo"}
- kind: Pod
  apiVersion: v1
  metadata:
    name: c
    annotations:
      ▶k8s.v1.cni.cncf.io/network-status: '[{"name": "n", "ips": 5}]'
`,
		"a List in JSON": `{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c", "annotations": {
    ▶"k8s.v1.cni.cncf.io/network-status": "[{\n\"name\": 5}]"}}}
]}`,
		"aliases stand where they are written": "type: pci\nversion: 1.1.0\npci: &p\n  ▶pci-address: '3'\n▶vdpa: *p\n",
	} {
		text, want := marked(text)
		all, err := checker.CheckAll([]byte(text), "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for _, d := range all {
			for _, f := range d.Findings {
				got = append(got, fmt.Sprintf("%3d:%d", f.Line, f.Column))
			}
		}
		slices.Sort(got)
		got = slices.Compact(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s%+v", name, diff, all)
		}
	}
}

// marked takes the marks out of a text, and gives their lines and columns.
func marked(text string) (clean string, at []string) {
	parts := strings.Split(text, "▶")
	for n, part := range parts {
		if clean += part; n < len(parts)-1 {
			before, row := strings.Count(clean, "\n"), clean[strings.LastIndex(clean, "\n")+1:]
			at = append(at, fmt.Sprintf("%3d:%d", before+1, utf8.RuneCountInString(row)+1))
		}
	}
	return clean, at
}

// What cannot be read has the line that the parser names, in the file: documents above it
// count, and so does a block that the text stands in.
func TestSyntaxErrorsHaveTheLineOfTheFile(t *testing.T) {
	for text, want := range map[string]string{
		"type: pci\n---\n\ntype: pci\n pci: [\n": `5: the text is neither JSON nor YAML: yaml: line 5: mapping values are not allowed in this context`,
		"{\n\"type\": \"pci\",\n":                `2: the text is not JSON: line 2, byte 17: unexpected end of JSON input`,
		"kind: NetworkAttachmentDefinition\napiVersion: k8s.cni.cncf.io/v1\nspec:\n  config: |\n    {\n    \"type\" 5\n    }\n": `6: the text is not JSON: line 2, byte 10: invalid character '5' after object key`,
		"kind: NetworkAttachmentDefinition\napiVersion: k8s.cni.cncf.io/v1\nspec:\n  config: '{5'\n":                            `4: the text is not JSON: line 1, byte 2: invalid character '5' looking for beginning of object key string`,
	} {
		all, err := checker.CheckAll([]byte(text), "")
		must(t, err)
		f := all[len(all)-1].Findings[0]
		if got := fmt.Sprintf("%d: %s", f.Line, f.Rule); got != want {
			t.Errorf("%q:\n%s, want\n%s", text, got, want)
		}
	}
}

// However large the text: the places of all findings are found in one walk through it.
func TestManyFindingsTakeOneWalk(t *testing.T) {
	const many = 20_000
	text := "[" + strings.Repeat("5,\n", many) + "5]"
	r, err := checker.Check([]byte(text), validate.NetworkStatus)
	if err != nil || len(r.Findings) != many+1 || r.Findings[many].Line != many+1 || r.Findings[1].Column != 1 {
		t.Errorf("%d findings, %v", len(r.Findings), err)
	}
	r, err = checker.Check([]byte(strings.ReplaceAll(text, "5,\n", `"é",`)), validate.NetworkStatus)
	if err != nil || len(r.Findings) != many+1 || r.Findings[many].Line != 1 || r.Findings[many].Column != 4*many+2 {
		t.Errorf("on one line: %d findings, %v", len(r.Findings), err)
	}
}

// Nothing looks into a block in a block, so that neither does the work of all that are deeper.
func TestBlocksInBlocksTakeOneWalk(t *testing.T) {
	allocations := func(depth int) float64 {
		text := "type: pci\nver: |\n"
		for n := range depth {
			text += strings.Repeat(" ", n+1) + "x: |\n"
		}
		return testing.AllocsPerRun(1, func() {
			if r, err := checker.Check([]byte(text), validate.DeviceInfo); err != nil || r.Findings[0].Line == 0 {
				t.Fatalf("%+v, %v", r, err)
			}
		})
	}
	if few, many := allocations(50), allocations(200); many > 2*few {
		t.Errorf("of 50 blocks %.0f allocations, of 200 blocks %.0f", few, many)
	}
}

// A path is as long as the value is deep: none is made but where something is to be told.
func TestObjectsInObjectsTakeTheMemoryOfTheirText(t *testing.T) {
	memory := func(depth int) (bytes uint64) {
		text := `{"type":"pci","x":` + strings.Repeat(`{"`+strings.Repeat("k", 100)+`":`, depth) + "5" + strings.Repeat("}", depth) + "}"
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := checker.Check([]byte(text), validate.DeviceInfo)
		runtime.ReadMemStats(&after)
		if err != nil || len(r.Findings) == 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := memory(500), memory(2000); many > 5*few {
		t.Errorf("of 500 objects %d bytes, of 2000 objects %d", few, many)
	}
}

// Long keys are shown short, and are none the less different; of very many that are repeated
// the first hundred are told.
func TestRepeatedKeysAreThoseThatAreEqual(t *testing.T) {
	long := strings.Repeat("a key ", 200)
	for text, want := range map[string]int{
		`{"` + long + `1":0,"` + long + `2":0}`:                         0,
		`{"` + long + `1":0,"` + long + `1":0,"` + long + `1":0}`:       1,
		`{"x":[` + strings.Repeat(`{"y":0,"y":0},`, 1000) + `{"z":0}]}`: 100,
	} {
		r, err := checker.Check([]byte(text), validate.DeviceInfo)
		must(t, err)
		repeated := slices.DeleteFunc(r.Findings, func(f validate.Finding) bool { return !strings.Contains(f.Rule, "more than once") })
		if len(repeated) != want {
			t.Errorf("%.40s...: %d keys are repeated, want %d", text, len(repeated), want)
		}
	}
}

// texts gives the texts of the cases, and the specification's examples.
func texts(f *testing.F) (list [][]byte) {
	f.Helper()
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(cases) == 0 {
		f.Fatalf("cases: %q, %v", cases, err)
	}
	for _, name := range cases {
		archive, err := txtar.ParseFile(name)
		must(f, err)
		for n := 0; n < len(archive.Files); n += 2 {
			list = append(list, archive.Files[n].Data)
		}
	}
	for _, name := range examples(f) {
		data, err := os.ReadFile(name)
		must(f, err)
		list = append(list, data)
	}
	return list
}

// findings checks a text of a kind, and gives what is found below a path, with the path
// as if it were the whole text, and without lines.
func findings(t *testing.T, text []byte, kind validate.Kind, below string) (list []validate.Finding) {
	t.Helper()
	r, err := checker.Check(text, kind)
	must(t, err)
	for _, f := range r.Findings {
		if rest, ok := strings.CutPrefix(f.Path, below); ok {
			f.Path, f.Line, f.Column = "$"+rest, 0, 0
			list = append(list, f)
		}
	}
	return list
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return data
}

func fuzzObjects(f *testing.F, test func(t *testing.T, text []byte, object map[string]json.RawMessage)) {
	for _, text := range texts(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) == nil && object != nil {
			test(t, text, object)
		}
	})
}

// A device-info map is judged alike by itself and in a network-status, as JSON and in a
// pod's annotation, and as the library judges it.
func FuzzNetworkStatus(f *testing.F) {
	fuzzObjects(f, func(t *testing.T, text []byte, _ map[string]json.RawMessage) {
		text = marshal(t, json.RawMessage(text)) // without what JSON leaves out
		alone := findings(t, text, validate.DeviceInfo, "$")
		list := marshal(t, []map[string]any{{"name": "n", "device-info": json.RawMessage(text)}})
		if diff := cmp.Diff(alone, findings(t, list, validate.NetworkStatus, "$[0].device-info")); diff != "" {
			t.Errorf("in a list (-alone +there):\n%s", diff)
		}
		const annotation = "k8s.v1.cni.cncf.io/network-status"
		pod := marshal(t, map[string]any{"kind": "Pod", "metadata": map[string]any{"annotations": map[string]string{annotation: string(list)}}})
		if diff := cmp.Diff(alone, findings(t, pod, validate.NetworkStatus, `$.metadata.annotations["`+annotation+`"][0].device-info`)); diff != "" {
			t.Errorf("in a pod (-alone +there):\n%s", diff)
		}
		info, err := devinfo.Parse(text)
		good := err == nil && len(info.Validate().Errors()) == 0
		report := validate.Report{Findings: alone}
		repeated := strings.Contains(string(marshal(t, alone)), "more than once")
		if good != (report.Errors() == 0) && !repeated {
			t.Errorf("the library says %v, and here it is %+v", err, alone)
		}
	})
}

// A configuration that our plugin would refuse is found wrong, by itself and in a
// NetworkAttachmentDefinition.
func FuzzDefinition(f *testing.F) {
	fuzzObjects(f, func(t *testing.T, _ []byte, object map[string]json.RawMessage) {
		delete(object, "plugins")
		delete(object, "kind")
		for key, value := range map[string]string{"type": `"devinfo"`, "name": `"n"`, "cniVersion": `"1.0.0"`} {
			object[key] = json.RawMessage(value)
		}
		text := marshal(t, object)
		cfg, err := config.Parse(text)
		must(t, err)
		nad := marshal(t, map[string]any{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
			"metadata": map[string]string{"name": "n"}, "spec": map[string]string{"config": string(text)}})
		for _, here := range []struct {
			text  []byte
			below string
		}{{text, "$"}, {nad, "$.spec.config"}} {
			for _, problem := range cfg.Problems {
				wrong := false
				for _, f := range findings(t, here.text, validate.CNIConfig, here.below) {
					wrong = wrong || !f.Warning && f.Path == "$."+problem.Key
				}
				if !wrong {
					t.Errorf("%s is not found wrong in %s: %v", problem.Key, here.text, problem)
				}
			}
		}
	})
}
