package validate_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/ctl/validate"
)

// A mutator changes configurations. It makes the same changes in each run of the test.
type mutator struct{ *rand.Rand }

func pick[T any](m mutator, list []T) T { return list[m.IntN(len(list))] }

var (
	mutatedKeys = slices.Concat(validate.ListKeys, []string{
		"type", "ipam", "dns", "capabilities", "prevResult", "runtimeConfig", "args", "deviceID", "pciBusID", "deviceInfo", "deviceInfoFile", "delegates",
		"strict", "followLower", "cdi", "resourceName", "CNIDeviceInfoFile", "Type", "capabılities", "cni.dev/valid-attachments",
	})
	mutatedValues = []string{
		`null`, `""`, `"x"`, `5`, `true`, `false`, `"true"`, `"maybe"`, `[]`, `["x"]`, `[5]`, `[null]`, `{}`, `{"x": 1}`, `{"x": true}`, `"1.1.0"`, `"0.1.0"`, `"0.4.0"`, `"9.0.0"`, `"1.0"`,
		`["1.0.0", "1.1.0"]`, `["9.0.0"]`, `["0.3.1", "9.0.0"]`, `"auto"`, `"devinfo"`, `"macvlan"`, `"a/b"`, `"{podUID}"`, `"{pod_uid}"`, `"0000:3b:00.2"`, `"0000:3b:00.3"`, `"3b:00.2"`,
		`{"type": "macvlan"}`, `[{"type": "macvlan"}]`, `[{"type": "macvlan", "capabilities": {"mac": true}}]`, `{"CNIDeviceInfoFile": true}`, `{"nameservers": "x"}`,
		`{"type": "vhost-user", "vhost-user": {"mode": "server", "path": "/run/{podUID}"}}`, `{"pci": {"pci-address": "0000:3b:00.2"}}`,
		`"` + strings.Repeat("n", 184) + `"`, `"` + strings.Repeat("n", 185) + `"`, `1e999`,
	}
)

// value returns one of the values that a text of the value pool can have.
func (m mutator) value() (v any) {
	_ = json.Unmarshal([]byte(pick(m, mutatedValues)), &v) // 1e999 becomes null
	return v
}

// mutate returns the value with one change somewhere below it.
func (m mutator) mutate(v any) any {
	switch is := v.(type) {
	case map[string]any:
		key := pick(m, mutatedKeys)
		if keys := slices.Sorted(maps.Keys(is)); len(keys) > 0 && m.IntN(3) > 0 {
			key = pick(m, keys)
		}
		switch old, has := is[key]; {
		case !has || m.IntN(4) == 0:
			is[key] = m.value()
		case m.IntN(6) == 0:
			delete(is, key)
		case m.IntN(8) == 0:
			delete(is, key)
			is[pick(m, []string{strings.ToUpper(key), strings.ToLower(key), key + "s", strings.ReplaceAll(key, "s", "ſ")})] = old
		default:
			is[key] = m.mutate(old)
		}
		return is
	case []any:
		if len(is) == 0 || m.IntN(3) == 0 {
			return slices.Insert(is, m.IntN(len(is)+1), m.value())
		}
		at, other := m.IntN(len(is)), m.IntN(len(is))
		switch m.IntN(6) {
		case 0:
			return slices.Delete(is, at, at+1)
		case 1:
			is[at], is[other] = is[other], is[at]
		default:
			is[at] = m.mutate(is[at])
		}
		return is
	}
	return m.value()
}

// differences are the errors of the runtime that validate need not find, and the errors of validate although the runtime
// accepts the network, each with the reason.
var differences = map[string]*regexp.Regexp{
	"validate does not know the devices of the node":                                 regexp.MustCompile(`^((100|102): |ADD wrote no device-info file$|7: .*: withheld: )`),
	"a device plugin's file may complete deviceInfo":                                 regexp.MustCompile(`^103: invalid device-info`),
	"ADD without a path does nothing, so that the rest of deviceInfo may be missing": regexp.MustCompile(`^validate: spec\.config\.deviceInfo\..*: required when`),
	"libcni ignores letter case, and validate insists on the documented spelling":    regexp.MustCompile(`^validate: (spec\.config\.)?(plugins\[\d\]\.)?(capabilities|deviceInfoFile): must (declare|be "auto", or)`),
	"libcni replaces runtimeConfig if it passes a value":                             regexp.MustCompile(`^validate: (spec\.config\.)?(plugins\[\d\]\.)?runtimeConfig`),
}

// For 2,000 mutated networks, validate finds an error exactly if libcni or the plugin refuses the network, or if
// the plugin gets no path for the device-info file.
func TestValidateAgreesWithRuntimeAndPlugin(t *testing.T) {
	n, m := newNode(t), mutator{rand.New(rand.NewPCG(46, 2))}
	listed := map[string]int{}
	for range 2000 {
		row := strings.ReplaceAll(pick(m, networks), "@", `"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true}`)
		var tree any
		must(t, json.Unmarshal([]byte(row[strings.Index(row, ": {")+2:]), &tree))
		for range 1 + m.IntN(2) {
			tree = m.mutate(tree)
		}
		network, multus, resource := string(marshal(t, tree)), m.IntN(2) == 0, m.IntN(2) == 0
		report := one(t, n.checker(), n.document(t, network, multus, multus && resource), validate.CNIConfig)
		why := n.attach(t, network, multus, multus && resource)
		switch {
		case why != "":
		case n.fileless:
			why = "ADD wrote no device-info file"
		case n.pathless && (!multus || resource): // without a resource Multus passes no path, of which validate warns
			why = "ADD did nothing"
		}
		if report.Skipped != "" && !n.ran || (why != "") == (report.Errors() > 0) {
			continue
		}
		errs := []string{why}
		if why == "" {
			errs = slices.DeleteFunc(foundIn(report), func(f string) bool { return strings.HasPrefix(f, "warning: ") })
			for n := range errs {
				errs[n] = "validate: " + errs[n]
			}
		}
		for _, err := range errs {
			known := false
			for reason, match := range differences {
				if match.MatchString(err) {
					known = true
					listed[reason]++
				}
			}
			if !known {
				t.Errorf("%s, of Multus: %v, with a device: %v\n%s", network, multus, resource, err)
			}
		}
	}
	for reason := range differences {
		if listed[reason] == 0 {
			t.Errorf("no network shows that %s: remove it from the list", reason)
		}
	}
}
