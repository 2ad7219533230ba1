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
	"devinfo-cni.io/test/goldentest"
)

// short expands the abbreviations of testdata.
var short = strings.NewReplacer(
	"{CNI,", `{"apiVersion":"cni.networking.x-k8s.io/v1alpha1","kind":"CNIConfig",`,
	"{LAN,", `{"cniVersion":"1.0.0","name":"lan",`,
	"MACVLAN", macvlan,
	"STATIC", `{"cniVersion":"1.0.0","name":"lan","plugins":[{"type":"macvlan","capabilities":{"ips":true,"mac":true}},`+
		`{"type":"bandwidth","capabilities":{"bandwidth":true,"infinibandGUID":true}}]}`,
	"ALL", `["ips","mac","bandwidth","portMappings","infinibandGUID"]`,
)

// A line has configs of a class and of a claim. Claims may have plugins only if the line begins with one of a claim.
func TestParametersGiveNetworkOrRefusal(t *testing.T) {
	for _, file := range []string{"sources", "parameters", "names", "plugins", "args"} {
		goldentest.Lines(t, "testdata/"+file+".txt", func(line string) []string {
			c := claim(t, strings.Split(short.Replace(line), " & ")...)
			policy := node
			if strings.HasPrefix(line, "class") {
				policy.AllowClaimTypes = nil
			}
			if _, err := cniconfig.Resolve(c, policy); err != nil {
				r := refused(t, c, policy)
				return []string{fmt.Sprintf("request %q: %s", r.Request, r.Rule), r.Remedy}
			}
			n := resolve(t, c, policy)[0]
			networks := []string{fmt.Sprintf("%s in %s, CNI %s: %s", n.IfName, n.Network, n.CNIVersion, n.List)}
			if n.Capabilities != nil {
				networks = append(networks, fmt.Sprintf("late %v, %s", n.Late, n.Capabilities))
			}
			return networks
		})
	}
}

func TestTooLongOrUnreadableParametersAreRefused(t *testing.T) {
	long := strings.Repeat("x", 10*1024)
	for params, rule := range map[string]string{
		`"ifName":"net1` + "\xff" + `"`:                                                                "UTF-8",
		`"ifName":"net1","config":` + strings.Replace(macvlan, "eth0", long, 1):                        "at most 10240 are allowed",
		`"ifName":"net1","config":{"cniVersion":"1.0.0","name":"` + long[:129] + `","type":"macvlan"}`: "is not a network name",
	} {
		difftest.Contains(t, refused(t, claim(t, "class "+with(params)), node).Rule, rule)
	}
}

// An accepted claim names no plugin except the allowed ones, even if each key "type" in any letter case counts.
func FuzzClaim(f *testing.F) {
	f.Add(with(`"ifName":"net1","config":` + macvlan))
	f.Add(with(`"ifName":"net1","config":{"cniVersions":["0.4.0","1.0.0"],"name":"a","plugins":[{"type":"macvlan","x":"\u003c"}]}`))
	f.Add(short.Replace(`{CNI,"ifName":"net1","config":{LAN,"plugins":[{"type":"macvlan","IPAM":{"Type":"evil"}}]}}`))
	f.Add(short.Replace(`{CNI,"ifName":"net1","config":{LAN,"plugins":[{"type":"macvlan","a":[{"typE":"evil"}]},{"type":"host-local"}]}}`))
	f.Add(short.Replace(`{CNI,"ifName":"net1","config":{LAN,"plugins":[{"type":"macvlan","type":"evil"}]}}`))
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
