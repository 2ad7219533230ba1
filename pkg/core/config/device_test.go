package config_test

import (
	"fmt"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/config"
)

// A key has lookalikes in other letter case, and with a letter of Unicode that folds to s or k.
func TestKeysThatDifferInLetterCaseAreRefusedAtAnyDepth(t *testing.T) {
	lookalikes := map[string][]string{
		"device": {"Device", "DEVICE", "devicE"}, "pciBusID": {"pcibusid", "PCIBusID", `pciBu\u017fID`}, "dns": {"DNS", `dn\u017f`}, "kind": {"Kind", `\u212aind`}, "é": {"É", `\u00c9`},
	}
	problem := func(keys string) *config.Problem {
		return parse(t, `{"name": "n", "delegates": [{"type": "a", `+keys+`}]}`).DelegateProblem(0)
	}
	for _, form := range []string{`%s`, `"a": {%s}`, `"a": [1, {%s}]`, `"runtimeConfig": {"x": 1, %s}`, `"ipam": {"ranges": [[{%s}]]}`, `"delegates": [{"delegate": {%s}}]`} {
		for key, others := range lookalikes {
			for _, other := range others {
				for _, pair := range []string{`"1": null, "2": null`, `"2": null, "1": null`, `"1": null, "y": {}, "2": null`, `"1": null, "y": [], "1": null, "2": {}`} {
					if key == "dns" {
						pair = strings.ReplaceAll(pair, "null", "{}")
					}
					text := fmt.Sprintf(form, strings.NewReplacer("1", key, "2", other).Replace(pair))
					if p := problem(text); p == nil || p.Want != "one of the two keys: other parsers ignore the letter case" {
						t.Errorf("%s: %v", text, p)
					}
				}
			}
			text := fmt.Sprintf(form, fmt.Sprintf(`"%s": {}, "%[1]s": null`, key)) // libcni passes on one of them
			if p := problem(text); p != nil {
				t.Errorf("%s: %v", text, p)
			}
		}
	}
}

// Each delegate gets a copy of args, runtimeConfig, prevResult, and the network's name and device.
func TestDelegatesTogetherGetAtMostOneMegabyte(t *testing.T) {
	for _, delegates := range []int{1, 2, 32} {
		size := 1 << 20 / delegates
		list := strings.Repeat(`{"type": "a"},`, delegates-1) + `{"type": "a"}`
		for form, rest := range map[string]int{ // bytes beside the text, five of them the default of cniVersion
			`{"args": {"%s": 1}, "delegates": [%s]}`: 6, `{"args": {"a": "%s"}, "delegates": [%s]}`: 8, `{"runtimeConfig": {"x": ["%s"]}, "delegates": [%s]}`: 10, `{"name": "%s", "delegates": [%s]}`: 5,
			`{"pciBusID": "%s", "delegates": [%s]}`: 5, `{"prevResult": {"x": "%s"}, "delegates": [%s]}`: 14,
		} {
			for more, ok := range map[int]bool{1: false, 0: true} {
				n := size - rest
				if strings.Contains(form, "pciBusID") {
					n /= 2 // also the deviceID
				}
				c := parse(t, fmt.Sprintf(form, strings.Repeat("x", n+more), list))
				p := c.DelegateProblem(0)
				if (p == nil) != ok || c.Problems != nil || p != nil && (p.Key != "delegates" || p.Want != "at most 1 MiB for all plugins together" || len(p.Error()) > 300) {
					t.Errorf("%d delegates, %.30s: %v", delegates, form, p)
				}
			}
		}
	}
}
