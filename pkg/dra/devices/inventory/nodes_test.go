package inventory_test

import (
	"testing"

	"devinfo-cni.io/pkg/capturefile/capturetest"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/devices/inventory"
)

const racks = `devices:
- {nodes: {matchLabels: {rack: a}}, pfNames: [eth1], sharing: exclusive, attributes: {net: blue}}
- {nodes: {matchExpressions: [{key: rack, operator: In, values: [b]}]}, pfNames: [eth1], sharing: exclusive, attributes: {net: red}}
- {ifNames: [eth0], sharing: shared}
`

func TestRuleAppliesToNodesThatItSelects(t *testing.T) {
	h := host(t, capturetest.Text(t, "igb-sriov"))
	for rack, want := range map[string]string{"a": "blue", "b": "red", "c": ""} {
		r := rules(t, racks).On(map[string]string{"rack": rack})
		decisions := inventory.Decide(read(t, h), r, input())
		all := inventory.PublishedIn(inventory.Slices(decisions, nil, nil))
		if got := inventory.Text(all["pci-0000-41-10-0"], inventory.Domain+"/net"); got != want {
			t.Errorf("rack %s: net is %q, want %q", rack, got, want)
		}
		if _, ok := all["pci-0000-01-00-0"]; !ok {
			t.Errorf("rack %s: the rule without nodes does not apply", rack)
		}
		if unmatched := r.Unmatched(decisions, h.Links); len(unmatched) > 0 {
			t.Errorf("rack %s: unmatched rules %v", rack, unmatched)
		}
	}
}

func TestErrorNamesInvalidNodeSelector(t *testing.T) {
	for nodes, want := range map[string]string{
		`{}`:                        "devices[0].nodes: the selector selects all nodes",
		`rack`:                      "devices[0].nodes",
		`{matchLabel: {rack: a}}`:   "devices[0].nodes.matchLabel: the key is not known; did you mean matchLabels?",
		`{matchLabels: {"a b": a}}`: "devices[0].nodes: ",
		`{matchLabels: {rack: 1}}`:  "devices[0].nodes.matchLabels",
		`{matchExpressions: [{key: rack, operator: Is}]}`: "devices[0].nodes: ",
	} {
		_, err := inventory.ParseRules([]byte("devices: [{ifNames: [a], sharing: shared, nodes: " + nodes + "}]"))
		difftest.Says(t, err, want)
	}
}
