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
	docs := validate.Parse("file", []byte(text))
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

// Each file contains texts, and after each text its findings.
func TestFindingsMatchGoldenFiles(t *testing.T) {
	goldentest.Archives(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		for n := 0; n+1 < len(archive.Files); n += 2 {
			in, finds := archive.Files[n], &archive.Files[n+1]
			if finds.Name != "finds" {
				t.Fatalf("%s is not followed by what it finds", in.Name)
			}
			t.Run(in.Name, func(t *testing.T) {
				goldentest.Section(t, finds, lines(check(checker, string(in.Data), "")))
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

// The file has no known key, so validate must use its name.
func TestSettingsAreRecognizedByFileName(t *testing.T) {
	for file, want := range map[string]validate.Kind{"/etc/cni/devinfo/node.json": validate.Settings, "settings/default.json": validate.Settings, "x.json": ""} {
		docs := validate.Parse(file, []byte(`{"colour": "red"}`))
		checker.Check(docs, "")
		if docs[0].Kind != want || (want != "") != (docs[0].Errors() == 1) {
			t.Errorf("%s: %+v", file, docs)
		}
	}
}

// A finding has the line of its value. If the value is missing it has the line of the object that lacks it.
func TestFindingsHaveLineOfTheirValue(t *testing.T) {
	for text, want := range map[string]string{
		"\n{\"type\":\t\"pci\",\n\t\"ver\": 1, \"version\": \"1.1.0\",\r\n\t\"pci\":\n{\"ä\":1}}":       "4 pci.pci-address, 3 ver, 5 pci.ä",
		"# a comment\ntype: pci\nver: 1\nversion: 1.1.0\npci:\n  # another\n  pci-address: '3'\n":       "7 pci.pci-address, 3 ver",
		"# a comment\n---\n{type: pci, version: 1.1.0}\n--- {type: pci,\n  ver: 1,\n version: 1.1.0}\n": "3 pci, 4 pci, 5 ver",
		"type: pci\nversion: 1.1.0\npci: &p\n  pci-address: '3'\nvdpa: *p\n":                            "4 pci.pci-address, 5 vdpa.parent-device, 5 vdpa.driver, 5 vdpa.path, 5 vdpa.pci-address",
		"apiVersion: v1\nkind: List\nitems:\n- {}\n- apiVersion: k8s.cni.cncf.io/v1\n  kind: NetworkAttachmentDefinition\n  metadata: {name: a}\n  spec:\n    config: |\n      {\"type\": \"devinfo\",\n       \"cniVersion\": \"1.0.0\",\n       \"strict\": 5, \"deviceID\": \"x\", \"deviceInfoFile\": \"auto\"}\n": "9 spec.config.strict",
		// The YAML parser cannot read this escape.
		`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "\ud83d\ude00"}}`: "0 pci.pci-address",
	} {
		var got []string
		for _, d := range check(checker, text, "") {
			for _, f := range d.Findings {
				got = append(got, fmt.Sprint(f.Line, " ", f.Path))
			}
		}
		difftest.Same(t, text, strings.Join(got, ", "), want)
	}
}

func TestOrderOfPlugins(t *testing.T) {
	const before, after, fails = "runs before %s, which makes the interface: put", "runs after %s, which in the RDMA mode exclusive", "runs before %s, which makes the interface, so ADD fails"
	for chain, want := range map[string]string{
		"sriov devinfo": "", "sriov tuning devinfo vrf": "", "unheard-of devinfo": "", "unheard-of devinfo unknown-too": "", "sriov devinfo unheard-of": "",
		"sriov devinfo rdma coordinator": "", "macvlan devinfo coordinator linkerd-cni": "", "sriov devinfo kuma-cni egress-cni dnsname": "", "ifacer macvlan devinfo": "",
		"tuning devinfo unheard-of": fmt.Sprintf(before, "unheard-of"), "rdma devinfo sriov": fmt.Sprintf(after, "rdma"), "tuning devinfo sriov": fmt.Sprintf(before, "sriov"),
		"devinfo sriov rdma": fmt.Sprintf(fails, "sriov"), "devinfo tuning unheard-of": fmt.Sprintf(fails, "unheard-of"),
		"sriov rdma devinfo": fmt.Sprintf(after, "rdma"), "macvlan devinfo bond": fmt.Sprintf(before, "bond"),
	} {
		var plugins []string
		for kind := range strings.FieldsSeq(chain) {
			plugins = append(plugins, fmt.Sprintf(`{"type": %q, "deviceInfoFile": "auto"}`, kind))
		}
		d := one(t, checker, `{"cniVersion": "1.0.0", "name": "n", "plugins": [`+strings.Join(plugins, ", ")+"]}", "")
		if found := fmt.Sprint(d.Findings); want == "" && len(d.Findings) > 0 || !strings.Contains(found, want) {
			t.Errorf("%s: want %q, got %s", chain, want, found)
		}
	}
}

// FuzzCheck checks that each finding of any text has a rule and a short value. A device-info file must be valid exactly if the
// library accepts it and no key is repeated.
func FuzzCheck(f *testing.F) {
	cases, err := filepath.Glob("testdata/*.txtar")
	must(f, err)
	for _, name := range cases {
		archive, err := txtar.ParseFile(name)
		must(f, err)
		for _, file := range archive.Files {
			f.Add(file.Data, byte(len(file.Name)))
		}
	}
	f.Add([]byte(strings.Repeat("a: 1\n", 10_000)), byte(0)) // each line repeats the key of all lines before
	kinds := append([]validate.Kind{""}, validate.Kinds...)
	f.Fuzz(func(t *testing.T, text []byte, kind byte) {
		docs := check(checker, string(text), kinds[int(kind)%len(kinds)])
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
	must(t, err)
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

// wrongRules are invalid files for cni-dra-driver --devices. A text in braces is one rule of the list.
var wrongRules = []string{
	"- ifNames: [eth0]", "devices: {ifNames: [eth0]}", "device: []", "devices: []\ndevices: []", "devices: [", "devices:\n- {sharing: shared, sharing: shared}", "devices: [null, [p0]]",
	"{sharing: exclusive}", "{select: 'true'}", "{select: 'true', sharing: both}", "{selct: 'true', sharing: shared}", "{Select: 'true', sharing: shared}", "{select: 'tru', sharing: shared}", "{select: '1', sharing: shared}",
	"{select: '', ifNames: [], sharing: shared}", "{pfName: [p0], sharing: shared}", "{drivers: iavf, sharing: shared}", "{drivers: [''], sharing: shared}", "{pciAddresses: ['3b:00.1'], sharing: exclusive}",
	"{ifNames: [eth1, 'eth*'], sharing: shared}", "{pfNames: [''], sharing: shared}", "{pfNames: ['ens1f0np0#0-3'], sharing: exclusive}", "{drivers: [a], sharing: shared, resourceName: a/b}", "{drivers: [a], sharing: exclusive, resourceName: vf}",
	"{drivers: [a], sharing: exclusive, resourceName: a/" + long + "}", "{drivers: [a], sharing: exclusive, attachments: 2}", "{drivers: [a], sharing: shared, attachments: -2}",
	"{drivers: [a], sharing: shared, attachments: many}", "{drivers: [a], sharing: shared, bandwidth: 25X}", "{drivers: [a], sharing: shared, bandwidth: 0.5}", "{drivers: [a], sharing: shared, allowHostUse: true}",
	"{drivers: [a], sharing: exclusive, onDifference: refuse}", "{drivers: [a], sharing: exclusive, reset: always}", "{drivers: [a], sharing: shared, reset: auto}",
	"{drivers: [a], sharing: shared, attributes: {a-b: 1}}", "{drivers: [a], sharing: shared, attributes: {A_/b: 1}}", "{drivers: [a], sharing: shared, attributes: {kind: x}}",
	"{drivers: [a], sharing: shared, attributes: {resource.kubernetes.io/x: x}}", "{drivers: [a], sharing: shared, attributes: {x: 1, devinfo-cni.io/x: 1}}", "{drivers: [a], sharing: shared, attributes: {x: 1.5}}",
	"{drivers: [a], sharing: shared, publish: [pfname]}", "{drivers: [a], sharing: shared, publish: all}",
	"{drivers: [a], sharing: shared, attributes: {x: null}}", "{drivers: [a], sharing: shared, attributes: {x: " + long + "}}", "{drivers: [a], sharing: shared, attributes: {a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, h: 1, i: 1}}",
}

var long = strings.Repeat("x", 65)

// The golden file contains all messages, so that a person can read them together. Each names the error, its place,
// and the remedy. validate finds the same errors as ADD and Prepare.
func TestMessagesMatchGoldenFile(t *testing.T) {
	said := new(messages)
	said.WriteString("# Networks\n")
	validateFindsWhatADDRefuses(t, said)
	said.WriteString("\n# Claims\n")
	validateFindsWhatPrepareRefuses(t, said)
	said.WriteString("\n# Rules of cni-dra-driver\n")
	for _, rule := range wrongRules {
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
