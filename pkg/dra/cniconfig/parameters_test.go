package cniconfig_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/test/difftest"
)

// of returns parameters with a config of one plugin.
func of(plugin string) string {
	return with(`"ifName":"net1","config":{"cniVersion":"1.0.0","name":"lan","plugins":[` + plugin + `]}`)
}

// withDevice returns parameters with the key "device".
func withDevice(places string) string {
	return with(`"ifName":"net1","config":` + macvlan + `,"device":` + places)
}

// Package test/mistakes has further ones.
func TestInvalidParametersAreRefused(t *testing.T) {
	for name, test := range map[string]struct{ params, rule, remedy string }{
		"empty":              {"", "parameters are empty", "apiVersion"},
		"null":               {"null", "apiVersion is missing", "cni.networking.x-k8s.io/v1alpha1"},
		"no object":          {`["net1"]`, "cannot unmarshal array", "object"},
		"cut off":            {`{"apiVersion":"cni.networking.x-k8s.io/v1alpha1"`, "invalid JSON", "object"},
		"two objects":        {with(`"ifName":"net1"`) + "{}", "after top-level value", "one JSON object"},
		"no UTF-8":           {with(`"ifName":"net1` + "\xff" + `"`), "UTF-8", "UTF-8"},
		"too long":           {with(`"ifName":"net1","config":` + strings.Replace(macvlan, "eth0", strings.Repeat("x", 10*1024), 1)), "at most 10240 are allowed", "smaller"},
		"no version":         {`{"kind":"CNI","ifName":"net1"}`, "apiVersion is missing", `"cni.networking.x-k8s.io/v1alpha1" or "cni.dra.networking.x-k8s.io/v1alpha1"`},
		"another version":    {`{"apiVersion":"cni.networking.x-k8s.io/v1","kind":"CNI","ifName":"net1"}`, `apiVersion "cni.networking.x-k8s.io/v1" is not known`, "v1alpha1"},
		"a number":           {`{"apiVersion":1,"kind":"CNI","ifName":"net1"}`, `apiVersion "1" is not known`, "v1alpha1"},
		"no kind":            {`{"apiVersion":"cni.networking.x-k8s.io/v1alpha1","ifName":"net1"}`, "kind is missing", `"CNIConfig" or "CNI"`},
		"twice":              {with(`"ifName":"net1","ifName":"net2"`), `"ifName" occurs twice`, "remove one"},
		"twice, deep":        {of(`{"type":"macvlan","ipam":{"type":"evil"},"ipam":{"type":"host-local"}}`), `"config.plugins[0].ipam" occurs twice`, "remove one"},
		"twice, escaped":     {of(`{"type":"macvlan","ty\u0070e":"evil"}`), `"config.plugins[0].type" occurs twice`, "remove one"},
		"twice but for case": {of(`{"type":"macvlan","Master":"a","master":"b"}`), "differs from \"Master\" by letter case only", "remove one"},
		"Type":               {of(`{"type":"macvlan","x":{"Type":"evil"}}`), `"config.plugins[0].x.Type" is another spelling of "type"`, `write "type"`},
		"IPAM":               {of(`{"type":"macvlan","IPAM":{}}`), `another spelling of "ipam"`, `write "ipam"`},
		"Plugins":            {with(`"ifName":"net1","config":{"cniVersion":"1.0.0","name":"lan","type":"macvlan","PLUGINS":[]}`), `another spelling of "plugins"`, `write "plugins"`},
		"long s":             {of(`{"type":"macvlan","delegateſ":[]}`), `another spelling of "delegates"`, `write "delegates"`},
		"prevResult":         {of(`{"type":"macvlan","prevResult":{}}`), "may only be set by the runtime", "remove it"},
		"runtimeConfig":      {of(`{"type":"macvlan","delegates":[{"type":"macvlan","RuntimeConfig":{}}]}`), "may only be set by the runtime", "remove it"},
		"cni.dev":            {of(`{"type":"macvlan","cni.dev/valid-attachments":[]}`), "may only be set by the runtime", "remove it"},
		"nothing":            {`{"apiVersion":"cni.networking.x-k8s.io/v1alpha1","kind":"CNI"}`, "parameters must have ifName or config", "one of them"},
		"config a list":      {with(`"config":[]`), "config is not an object", "not as a string"},
		"no plugin":          {with(`"ifName":"net1","config":{"cniVersion":"1.0.0","name":"lan"}`), `must have the key "type" or "plugins"`, "list of plugins"},
		"empty plugins":      {with(`"ifName":"net1","config":{"cniVersion":"1.0.0","name":"lan","plugins":[]}`), "no plugins in list", "SPEC.md"},
		"one and many":       {with(`"ifName":"net1","config":{"cniVersion":"1.0.0","name":"lan","type":"macvlan","plugins":[{"type":"macvlan"}]}`), `both "type" and "plugins"`, "a plugin, or a list"},
		"no type":            {of(`{"master":"eth0"}`), "missing 'type'", "SPEC.md"},
		"a directory":        {of(`{"type":".."}`), "is not a file name", "without a directory"},
		"no name":            {with(`"ifName":"net1","config":{"cniVersion":"1.0.0","type":"macvlan"}`), "no name", "SPEC.md"},
		"a bad name":         {with(`"ifName":"net1","config":{"cniVersion":"1.0.0","name":"../x","type":"macvlan"}`), `config.name "../x" is not a network name`, "letters, digits"},
		"a long name":        {with(`"ifName":"net1","config":{"cniVersion":"1.0.0","name":"` + strings.Repeat("x", 129) + `","type":"macvlan"}`), "is not a network name", "at most 128"},
		"no CNI version":     {with(`"ifName":"net1","config":{"name":"lan","type":"macvlan"}`), `config.cniVersion "" is not known`, "1.1.0"},
		"a float of YAML":    {with(`"ifName":"net1","config":{"cniVersion":1.0,"name":"lan","type":"macvlan"}`), "invalid cniVersion type float64", "quote versions"},
		"args no list":       {with(`"config":{},"allowedClaimArgs":"ips"`), "allowedClaimArgs is not a list", `["ips", "mac"]`},
		"an unknown arg":     {with(`"config":{},"allowedClaimArgs":["ips","x"]`), `allowedClaimArgs: "x" is not known`, "infinibandGUID"},
		"an arg":             {with(`"config":{},"ips":["10.1.0.7/24"]`), `unknown key "ips"`, "allowedClaimArgs"},
		"places no list":     {withDevice(`"None"`), `device: "None" is not a list of places`, "key: deviceID"},
		"null places":        {withDevice(`null`), "device: null is not a list of places", "key: deviceID"},
		"place without key":  {withDevice(`[{"plugin":"macvlan"}]`), "device[0]: plugin and key are required", "key: deviceID"},
		"place with a value": {withDevice(`[{"plugin":"macvlan","key":"deviceID","value":"x"}]`), "device[0]: plugin and key are required", "key: deviceID"},
		"place no string":    {withDevice(`[{"plugin":"macvlan","key":7}]`), `device: [{"plugin":"macvlan","key":7}] is not a list of places`, "key: deviceID"},
	} {
		t.Run(name, func(t *testing.T) {
			r := refused(t, claim(t, "class "+test.params), node)
			difftest.Equal(t, r.Request, "net")
			difftest.Contains(t, r.Rule, test.rule)
			difftest.Contains(t, r.Remedy, test.remedy)
		})
	}
}

func TestInvalidInterfaceNamesAreRefused(t *testing.T) {
	for _, name := range []string{"eth0", "lo", ".", "..", "a/b", "a:b", "net%d", "net{idx}", "net{", "a b", "a\tb", "a\u00a0b", "a\x01", "a\u200bb", "sixteen-letters-", "éééééééé"} {
		quoted, err := json.Marshal(name)
		difftest.Must(t, err)
		r := refused(t, claim(t, "class "+with(`"config":`+macvlan), "claim "+with(`"ifName":`+string(quoted))), node)
		if !strings.HasPrefix(r.Rule, fmt.Sprintf("parameters (FromClaim): ifName %q: ", name)) {
			t.Errorf("%q: %v", name, r)
		}
	}
	if r := refused(t, claim(t, "class "+with(`"config":`+macvlan)), node); !strings.HasPrefix(r.Rule, "ifName is missing") {
		t.Error(r)
	}
	for _, name := range []string{"net1", "fifteen-letters", "n", "réseau", "eth1", "-"} {
		got := resolve(t, claim(t, "class "+with(`"config":`+macvlan), "claim "+with(`"ifName":"`+name+`"`)), node)
		difftest.Equal(t, got[0].IfName, name)
	}
}

// In each of these, root would run evil if a plugin of the list read it, which some do.
func TestClaimUsesOnlyAllowedPluginsAtAnyDepth(t *testing.T) {
	for name, plugin := range map[string]string{
		"the plugin":          `{"type":"evil"}`,
		"a second plugin":     `{"type":"macvlan"},{"type":"evil"}`,
		"IPAM":                `{"type":"macvlan","ipam":{"type":"evil"}}`,
		"a delegate":          `{"type":"macvlan","delegates":[{"type":"macvlan"},{"type":"evil"}]}`,
		"its IPAM":            `{"type":"macvlan","delegates":[{"type":"macvlan","ipam":{"type":"evil"}}]}`,
		"one delegate":        `{"type":"macvlan","delegate":{"type":"evil"}}`,
		"some other key":      `{"type":"macvlan","a":{"b":[[{"c":{"type":"evil"}}]]}}`,
		"a key with a dot":    `{"type":"macvlan","a.b":{"type":"evil"}}`,
		"escaped":             `{"type":"macvlan","ipam":{"\u0074ype":"evil"}}`,
		"a letter's case":     `{"type":"Macvlan"}`,
		"a path to it":        `{"type":"./macvlan"}`,
		"nothing":             `{"type":"macvlan","ipam":{"type":""}}`,
		"a list":              `{"type":"macvlan","ipam":{"type":["evil"]}}`,
		"an object":           `{"type":"macvlan","ipam":{"type":{"type":"macvlan"}}}`,
		"no text":             `{"type":"macvlan","ipam":{"type":null}}`,
		"white space":         `{"type":"macvlan ","ipam":{}}`,
		"what is no plugin":   `{"type":"macvlan","deviceInfo":{"type":"vhost-user"}}`,
		"beside what is none": `{"type":"macvlan","ipam":{"type":"host-local","x":{"type":"evil"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := refused(t, claim(t, "claim "+of(plugin)), node)
			if !strings.HasPrefix(r.Rule, "parameters (FromClaim): config.plugins[") {
				t.Error(r)
			}
			if noText := name == "a list" || name == "an object" || name == "no text"; noText != strings.Contains(r.Rule, "is not a string") {
				t.Error(r)
			}
		})
	}
	for _, plugin := range []string{
		`{"type":"macvlan"}`, `{"type":"macvlan","ipam":{"type":"host-local"}},{"type":"macvlan"}`, `{"type":"macvlan","types":["evil"],"mytype":"evil"}`,
	} {
		resolve(t, claim(t, "claim "+of(plugin)), node)
	}
	const others = `{"type":"bridge","ipam":{"type":"whereabouts"}},{"type":"devinfo","deviceInfo":{"type":"vhost-user"}}`
	resolve(t, claim(t, "class "+of(others)), cniconfig.Policy{Driver: driver}) // only administrators write classes
}

func TestRefusalContainsRequestRuleAndRemedy(t *testing.T) {
	const want = `request "net": parameters (FromClaim): config.plugins[0].ipam.type: "evil" runs as root on the node, and claims may not use it; ` +
		"give the config in the DeviceClass and only the ifName in the claim, or ask the node's administrator to add it to --allow-claim-config (now macvlan,host-local)"
	difftest.Equal(t, refused(t, claim(t, "claim "+of(`{"type":"macvlan","ipam":{"type":"evil"}}`)), node).Error(), want)
}

// An accepted claim names no plugin except the allowed ones, even if each key "type" in any letter case counts.
func FuzzClaim(f *testing.F) {
	f.Add(with(`"ifName":"net1","config":` + macvlan))
	f.Add(with(`"ifName":"net1","config":{"cniVersions":["0.4.0","1.0.0"],"name":"a","plugins":[{"type":"macvlan","x":"\u003c"}]}`))
	f.Add(of(`{"type":"macvlan","IPAM":{"Type":"evil"}}`))
	f.Add(of(`{"type":"macvlan","a":[{"typE":"evil"}]},{"type":"host-local"}`))
	f.Add(of(`{"type":"macvlan","type":"evil"}`))
	f.Add(with(`"ifName":"net1","config":{"cniVersion":"1.0.0","name":"a","type":"macvlan","x":1e400}`))
	f.Fuzz(func(t *testing.T, params string) {
		networks, err := cniconfig.Resolve(claim(t, "claim "+params), node)
		if err != nil {
			return
		}
		list, err := libcni.ConfListFromBytes(networks[0].List)
		if err != nil {
			t.Fatalf("libcni does not take %s: %v", networks[0].List, err)
		}
		if len(networks[0].List) > 10000 {
			return // too long together with the rest of the claim
		}
		again, err := cniconfig.Resolve(claim(t, "claim "+with(`"ifName":"`+networks[0].IfName+`","config":`+string(networks[0].List))), node)
		if err != nil || string(again[0].List) != string(networks[0].List) || again[0].Network != networks[0].Network {
			t.Fatalf("%s, taken again: %+v, %v", networks[0].List, again, err)
		}
		for _, plugin := range list.Plugins {
			var tree any
			difftest.Must(t, json.Unmarshal(plugin.Bytes, &tree))
			for _, name := range pluginTypes(tree) {
				if !slices.Contains(node.AllowClaimTypes, name) {
					t.Fatalf("%q would be run by %s", name, plugin.Bytes)
				}
			}
		}
	})
}

func pluginTypes(tree any) (list []string) {
	switch v := tree.(type) {
	case []any:
		for _, child := range v {
			list = append(list, pluginTypes(child)...)
		}
	case map[string]any:
		for key, child := range v {
			if strings.EqualFold(key, "type") {
				list = append(list, fmt.Sprint(child))
			}
			list = append(list, pluginTypes(child)...)
		}
	}
	return list
}

const static = `{"cniVersion":"1.0.0","name":"lan","plugins":[{"type":"macvlan","capabilities":{"ips":true,"mac":true}},` +
	`{"type":"bandwidth","capabilities":{"bandwidth":true,"infinibandGUID":true}}]}`

func TestClaimSetsArgsThatClassAllows(t *testing.T) {
	c := claim(t, "class "+with(`"ifName":"net1","waitForAttach":false,"allowedClaimArgs":["ips","mac"],"config":`+static),
		"claim "+with(`"ips":["10.1.0.7/24","fd00::7"],"mac":"02:00:00:00:00:07"`))
	got := resolve(t, c, cniconfig.Policy{Driver: driver})[0]
	want := map[string]json.RawMessage{"ips": json.RawMessage(`["10.1.0.7/24","fd00::7"]`), "mac": json.RawMessage(`"02:00:00:00:00:07"`)}
	difftest.Equal(t, got.Capabilities, want)
	if !got.Late {
		t.Error("not late")
	}
}

func TestUnsuitableArgIsRefused(t *testing.T) {
	all := `"allowedClaimArgs":["ips","mac","bandwidth","portMappings","infinibandGUID"],`
	for value, test := range map[string]struct{ may, rule, remedy string }{
		`"ips":["10.1.0.7/24"]`:                {"", `ips ["10.1.0.7/24"]: the DeviceClass does not allow claims to set it`, "allowedClaimArgs: [ips]"},
		`"mac":"02:00:00:00:00:07"`:            {`"allowedClaimArgs":["ips"],`, "mac", "allowedClaimArgs: [mac]"},
		`"ips":["10.1.0.777/24"]`:              {all, `"10.1.0.777/24" is not an address`, "fd00::7/64"},
		`"ips":"10.1.0.7/24"`:                  {all, "ips", "fd00::7/64"},
		`"ips":[]`:                             {all, "the list is empty", "fd00::7/64"},
		`"ips":["fe80::1%eth0"]`:               {all, "not an address", "fd00::7/64"},
		`"mac":"02:00:00:00:00"`:               {all, "not a hardware address of 6 bytes", "02:00"},
		`"infinibandGUID":"02:00:00:00:00:07"`: {all, "of 8 bytes", "c2:11"},
		`"bandwidth":{"ingressRate":-1}`:       {all, "bandwidth", "in bits"},
		`"bandwidth":{"rate":1}`:               {all, `unknown field`, "in bits"},
		`"portMappings":[{"hostPort":0,"containerPort":80,"protocol":"tcp"}]`:                    {all, "1 to 65535", "hostPort"},
		`"portMappings":[{"hostPort":1,"containerPort":80,"protocol":"icmp"}]`:                   {all, `protocol "icmp"`, "hostPort"},
		`"portMappings":[{"hostPort":1,"containerPort":80,"protocol":"tcp","hostIP":"nowhere"}]`: {all, `ParseAddr("nowhere")`, "hostPort"},
		`"portMappings":[{"hostPort":1,"containerPort":80,"protocol":"tcp"}]`:                    {all, "no plugin of network lan supports it", `{"portMappings": true}`},
		`"dns":{}`:              {all, `unknown key "dns"`, "infinibandGUID"},
		`"waitForAttach":false`: {all, `unknown key "waitForAttach"`, "infinibandGUID"},
	} {
		c := claim(t, "class "+with(`"ifName":"net1",`+test.may+`"config":`+static), "claim "+with(value))
		r := refused(t, c, cniconfig.Policy{Driver: driver})
		difftest.Contains(t, r.Rule, test.rule)
		difftest.Contains(t, r.Remedy, test.remedy)
	}
}
