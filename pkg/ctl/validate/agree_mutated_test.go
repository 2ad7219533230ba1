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
	"devinfo-cni.io/test/difftest"
)

// A mutator changes configurations. It makes the same changes in each run of the test.
type mutator struct{ *rand.Rand }

func pick[T any](m mutator, list []T) T { return list[m.IntN(len(list))] }

var (
	mutatedKeys = slices.Concat(validate.ListKeys, []string{
		"type", "ipam", "dns", "capabilities", "prevResult", "runtimeConfig", "args", "deviceID", "pciBusID", "deviceInfo", "deviceInfoFile", "delegates",
		"strict", "followLower", "cdi", "resourceName", "CNIDeviceInfoFile", "Type", "capabılities", "cni.dev/valid-attachments",
		"kernelpath", "rdma_device",
	})
	mutatedValues = []string{
		`null`, `""`, `"x"`, `5`, `true`, `false`, `"true"`, `"maybe"`, `[]`, `["x"]`, `[5]`, `[null]`, `{}`, `{"x": 1}`, `{"x": true}`, `"1.1.0"`, `"0.1.0"`, `"0.4.0"`, `"9.0.0"`, `"1.0"`,
		`["1.0.0", "1.1.0"]`, `["9.0.0"]`, `["0.3.1", "9.0.0"]`, `"auto"`, `"devinfo"`, `"macvlan"`, `"a/b"`, `"{podUID}"`, `"{pod_uid}"`, `"0000:3b:00.2"`, `"0000:3b:00.3"`, `"3b:00.2"`,
		`{"type": "macvlan"}`, `[{"type": "macvlan"}]`, `[{"type": "macvlan", "capabilities": {"mac": true}}]`, `{"CNIDeviceInfoFile": true}`, `{"nameservers": "x"}`,
		`{"type": "vhost-user", "vhost-user": {"mode": "server", "path": "/run/{podUID}"}}`, `{"pci": {"pci-address": "0000:3b:00.2"}}`,
		`"/run/$(podUID)"`, `{"type": "pci", "pci": {"rdma_device": "mlx5_0"}}`,
		`"` + strings.Repeat("n", 184) + `"`, `"` + strings.Repeat("n", 185) + `"`, `1e999`,
	}
)

// deviceNames are values of the keys that name a device.
var deviceNames = []string{`"0000:3b:00.2"`, `"0000:3b:00.8"`, `"0000:3b:00.2 "`, `"./0000:3b:00.2"`, `"3b:00.2"`, `"/sys/../etc"`}

// wrongNetworks are configurations with more of something than the plugin allows, and with other mistakes that mutations rarely make.
var wrongNetworks = []string{
	`a path: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [{"type": "macvlan", "kernelpath": "/sys/../etc"}]}`,
	`a socket: {"cniVersion": "1.0.0", "name": "n", @, "deviceInfo": {"vhost-user": {"mode": "client", "path": "/` + strings.Repeat("s", 107) + `"}}}`,
	`a name: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [{"type": "macvlan", "pciBusID": "./0000:3b:00.2"}]}`,
	`two keys: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [{"type": "macvlan", "pciBusID": "0000:3b:00.2", "pcibusid": null}]}`,
	`no path: {"cniVersion": "1.0.0", "name": "n", "type": "devinfo", "deviceInfo": {"pci": {"rdma-device": "mlx5_0"}}}`,
	`runtimeConfig: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2", "runtimeConfig": {"deviceID": 5}}`,
	`a key: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [{"type": "macvlan", "Name": "x"}]}`,
	`delegates: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [` + strings.Repeat(`{"type": "macvlan"}, `, 32) + `{"type": "macvlan"}]}`,
	`bytes for delegates: {"cniVersion": "1.0.0", "name": "n", @, "args": {"x": "` + strings.Repeat("x", 33_000) + `"}, "delegates": [` + strings.Repeat(`{"type": "macvlan"}, `, 31) + `{"type": "macvlan"}]}`,
	`levels: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2", "x": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}",
	`bytes of placeholders: {"cniVersion": "1.0.0", "name": "` + strings.Repeat("n", 180) + `", @, "deviceID": "0000:3b:00.2", "cdi": {"name": "` + strings.Repeat("{network}", 6000) + `"}}`,
	`interfaces: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2", "prevResult": {"cniVersion": "1.0.0", "interfaces": [` + strings.Repeat("{}, ", 1024) + "{}]}}",
}

// rules are parts of the plugin's errors and warnings about a configuration. For the same network validate says them too.
var rules = []string{
	"in this spelling only", "one of the two keys", "a name without", "the directory of a device", "at most 32", "at most 100", "at most 1 MiB for all plugins", "of each are supported",
	"at most 1 MiB", "no blank at the beginning", "a PCI address with its domain", "DD is at most 1f", "one of the placeholders", "a resource such as", "the nearest one is", "sun_path",
	"a plugin other than devinfo itself", "a name with the pod's UID", "a plugin configuration, an object",
}

// value returns one of the values that a text of the value pool can have, or a name of a device for a key that names one.
func (m mutator) value(key string) (v any) {
	pool := mutatedValues
	if slices.Contains([]string{"deviceID", "pciBusID", "kernelpath"}, key) && m.IntN(2) == 0 {
		pool = deviceNames
	}
	_ = json.Unmarshal([]byte(pick(m, pool)), &v) // 1e999 becomes null
	return v
}

// mutate returns the value of a key with one change somewhere below it.
func (m mutator) mutate(of string, v any) any {
	switch is := v.(type) {
	case map[string]any:
		key := pick(m, mutatedKeys)
		if keys := slices.Sorted(maps.Keys(is)); len(keys) > 0 && m.IntN(3) > 0 {
			key = pick(m, keys)
		}
		switch old, has := is[key]; {
		case !has || m.IntN(4) == 0:
			is[key] = m.value(key)
		case m.IntN(6) == 0:
			delete(is, key)
		case m.IntN(8) == 0:
			delete(is, key)
			is[pick(m, []string{strings.ToUpper(key), strings.ToLower(key), key + "s", strings.ReplaceAll(key, "s", "ſ")})] = old
		default:
			is[key] = m.mutate(key, old)
		}
		return is
	case []any:
		if len(is) == 0 || m.IntN(3) == 0 {
			return slices.Insert(is, m.IntN(len(is)+1), m.value(""))
		}
		at, other := m.IntN(len(is)), m.IntN(len(is))
		switch m.IntN(6) {
		case 0:
			return slices.Delete(is, at, at+1)
		case 1:
			is[at], is[other] = is[other], is[at]
		default:
			is[at] = m.mutate("", is[at])
		}
		return is
	}
	return m.value(of)
}

// differences are the errors of the runtime that validate need not find, and the errors of validate although the runtime
// accepts the network, each with the reason.
var differences = map[string]*regexp.Regexp{
	"validate does not know the devices of the node":                                 regexp.MustCompile(`^((100|102): |ADD wrote no device-info file$|7: .*: withheld: )`),
	"a device plugin's file may complete deviceInfo":                                 regexp.MustCompile(`^103: invalid device-info`),
	"ADD without a path does nothing, so that the rest of deviceInfo may be missing": regexp.MustCompile(`^validate: spec\.config\.deviceInfo\..*: required when`),
	"libcni ignores letter case, and validate insists on the documented spelling":    regexp.MustCompile(`^validate: (spec\.config\.)?(plugins\[\d\]\.)?(capabilities: no runtime passes a path|deviceInfoFile: Multus passes a path only)`),
	"libcni replaces runtimeConfig if it passes a value":                             regexp.MustCompile(`^validate: (spec\.config\.)?(plugins\[\d\]\.)?runtimeConfig`),
}

// For 2,000 mutated networks, validate finds an error exactly if libcni or the plugin refuses the network, or if
// the plugin gets no path for the device-info file.
func TestValidateAgreesWithRuntimeAndPlugin(t *testing.T) {
	n, m := newNode(t), mutator{rand.New(rand.NewPCG(46, 2))}
	all := slices.Concat(networks(t), wrongNetworks)
	listed, broken := map[string]int{}, map[string]bool{}
	for range 2000 {
		row := strings.ReplaceAll(pick(m, all), "@", `"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true}`)
		var tree any
		difftest.Must(t, json.Unmarshal([]byte(row[strings.Index(row, ": {")+2:]), &tree))
		for range 1 + m.IntN(2) {
			tree = m.mutate("", tree)
		}
		network, multus, resource := string(marshal(t, tree)), m.IntN(2) == 0, m.IntN(2) == 0
		report := one(t, n.checker(), n.document(t, network, multus, multus && resource), validate.CNIConfig)
		why := n.attach(t, network, multus, multus && resource)
		for _, rule := range rules {
			if said := strings.Contains(why+n.log.String(), rule); said && !strings.Contains(strings.Join(foundIn(report), "\n"), rule) {
				t.Errorf("%.2000s\nonly the plugin says %q: %s %s", network, rule, why, &n.log)
			} else if said {
				broken[rule] = true
			}
		}
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
	for _, rule := range rules {
		if !broken[rule] {
			t.Errorf("no network shows that validate says %q too", rule)
		}
	}
	for reason := range differences {
		if listed[reason] == 0 {
			t.Errorf("no network shows that %s: remove it from the list", reason)
		}
	}
}
