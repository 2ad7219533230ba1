package inventory_test

import (
	"fmt"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/inventory"
)

func TestAWrongRuleIsAnErrorThatNamesIndexAndKey(t *testing.T) {
	long := strings.Repeat("x", 65)
	nine := make([]string, 9)
	for n := range nine {
		nine[n] = fmt.Sprintf("a%d: 1", n)
	}
	for rule, want := range map[string]string{
		`{as: exclusive}`:                            `devices[1].select: nothing is named; give select, pciAddresses, pfNames, ifNames or drivers`,
		`null`:                                       `devices[1].select: it is missing; name devices, or leave the rule out`,
		`{select: 'true'}`:                           `devices[1].as: it is missing; write "shared" or "exclusive"`,
		`{select: 'true', as: both}`:                 `devices[1].as: "both" is not known; write "shared" or "exclusive"`,
		`{selct: 'true', as: shared}`:                `devices[1].selct: the key is not known; did you mean select?`,
		`{Select: 'true', as: shared}`:               `devices[1].Select: the key is not known; did you mean select?`,
		`{select: 'tru', as: shared}`:                `devices[1].select: compilation failed: ERROR: <input>:1:1: undeclared reference to 'tru'`,
		`{select: '1', as: shared}`:                  `devices[1].select: must evaluate to bool`,
		`{select: '', ifNames: [], as: shared}`:      `devices[1].select: nothing is named`,
		`{pciAddresses: ['3b:00.1'], as: exclusive}`: `devices[1].pciAddresses[0]: "3b:00.1" is not a PCI address of the form dddd:BB:DD.f; did you mean "0000:3b:00.1"?`,
		`{ifNames: [eth1, 'eth*'], as: shared}`:      `devices[1].ifNames[1]: "eth*" is not an interface name; there are no wildcards: use select`,
		`{pfNames: [''], as: shared}`:                `devices[1].pfNames[0]: "" is not an interface name`,
		`{drivers: [''], as: shared}`:                `devices[1].drivers[0]: it is empty`,
		`{drivers: iavf, as: shared}`:                `devices[1].drivers: it is a JSON string: it must be a list, ["..."]`,
		`{pfName: [p0], as: shared}`:                 `devices[1].pfName: the key is not known; did you mean pfNames?`,
		`{drivers: [a], as: shared, bandwidth: 25X}`: `devices[1].bandwidth: "25X" is no number of bit/s; write one such as "25G"`,
		`[p0]`: `devices[1].it is a JSON array: it must be a map, {select: ...}`,
		`{drivers: [a], as: shared, resourceName: a/b}`:                              `devices[1].resourceName: "a/b": Multus takes whole devices`,
		`{drivers: [a], as: exclusive, resourceName: vf}`:                            `devices[1].resourceName: "vf" is not a resource name such as example.com/vf`,
		`{drivers: [a], as: exclusive, resourceName: a/` + long + `}`:                `devices[1].resourceName: "a/` + long + `" has 67 bytes, at most 64 are allowed`,
		`{drivers: [a], as: exclusive, attachments: 2}`:                              `devices[1].attachments, bandwidth: only shared devices have them`,
		`{drivers: [a], as: shared, attachments: -2}`:                                `devices[1].attachments: -2 is less than 0`,
		`{drivers: [a], as: shared, bandwidth: 0.5}`:                                 `devices[1].bandwidth: 500m is not a whole number of bit/s above 0`,
		`{drivers: [a], as: shared, attributes: {a-b: 1}}`:                           `devices[1].attributes["a-b"]: "a-b" is not a C identifier of at most 32 characters`,
		`{drivers: [a], as: shared, attributes: {A_/b: 1}}`:                          `devices[1].attributes["A_/b"]: "A_" is not a domain of at most 63 characters`,
		`{drivers: [a], as: shared, attributes: {kind: x}}`:                          `devices[1].attributes["kind"]: the name is reserved for what the kernel says; choose another one`,
		`{drivers: [a], as: shared, attributes: {resource.kubernetes.io/x: x}}`:      `devices[1].attributes["resource.kubernetes.io/x"]: the domain resource.kubernetes.io is not yours`,
		`{drivers: [a], as: shared, attributes: {x: 1, devinfo-cni.io/x: 1}}`:        `devices[1].attributes["x"]: it is given twice, with and without its domain`,
		`{drivers: [a], as: shared, attributes: {x: 1.5}}`:                           `devices[1].attributes["x"]: 1.5 is not a string, integer or boolean`,
		`{drivers: [a], as: shared, attributes: {x: null}}`:                          `devices[1].attributes["x"]: null is not a string, integer or boolean`,
		`{drivers: [a], as: shared, attributes: {x: ` + long + `}}`:                  `devices[1].attributes["x"]: "` + long + `" has 65 bytes, at most 64 are allowed`,
		`{drivers: [a], as: shared, attributes: {` + strings.Join(nine, ", ") + `}}`: `devices[1].attributes: there are 9, at most 8 are allowed`,
	} {
		_, err := inventory.ParseRules([]byte("devices:\n- {ifNames: [eth9], as: shared}\n- " + rule + "\n"))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", rule, err, want)
		}
	}
}

func TestEachWrongRuleIsNamed(t *testing.T) {
	_, err := inventory.ParseRules([]byte(`{"devices": [{"as": "shared"}, {"ifNames": ["a"], "as": "x"}]}`))
	if err == nil || !strings.Contains(err.Error(), "devices[0].select") || !strings.Contains(err.Error(), "devices[1].as") {
		t.Errorf("got %v", err)
	}
}

func TestAWrongFileIsAnError(t *testing.T) {
	for text, want := range map[string]string{
		"devices: {a: b}": `devices: it is a JSON object: it must be a list, ["..."]`, "- ifNames: [eth0]": `it is a JSON array: it must be a map, {devices: ...}`, "device: []": `device: the key is not known; did you mean devices?`, "devices: []\ndevices: []": "already set in map",
		"devices: [": "invalid YAML", "devices:\n- {as: shared, as: shared}": "already set in map",
	} {
		if _, err := inventory.ParseRules([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestNoRulesOfferNothing(t *testing.T) {
	for _, text := range []string{"", "{}", "devices: []", "devices: null"} {
		if list := pool(t, host(t, captured(t, "igb-sriov")), text); len(list) > 0 {
			t.Errorf("%q: %v", text, deviceNames(list))
		}
	}
}
