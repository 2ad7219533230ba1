package validate_test

import (
	"fmt"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/test/goldentest"
)

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
