package cniconfig_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

const driver = "cni.dra.networking.x-k8s.io"

var share = "7d1c3a2f-6f3e-4b8f-9d0a-3c5f3f0e7a11"

// claim returns an allocated claim with one request, "net", for the driver. It is reserved for the pod default/demo.
// Each config is "SOURCE PARAMETERS" with source "class" or "claim".
func claim(t testing.TB, configs ...string) *resourceapi.ResourceClaim {
	t.Helper()
	c := &resourceapi.ResourceClaim{}
	c.Namespace, c.Name, c.UID = "default", "demo-net", "c1"
	request(c, "net")
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "demo", UID: "p1"}}
	for _, config := range configs {
		source, params, _ := strings.Cut(config, " ")
		configure(t, c, source, params)
	}
	return c
}

// configure adds a config for the requests, or for all requests.
func configure(t testing.TB, c *resourceapi.ResourceClaim, source, params string, requests ...string) {
	t.Helper()
	from := map[string]resourceapi.AllocationConfigSource{
		"class": resourceapi.AllocationConfigSourceClass, "claim": resourceapi.AllocationConfigSourceClaim,
	}[source]
	config := resourceapi.DeviceAllocationConfiguration{Source: from, Requests: requests}
	config.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: driver}
	config.Opaque.Parameters.Raw = []byte(params)
	c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, config)
}

// request adds a request and its allocated device.
func request(c *resourceapi.ResourceClaim, name string) {
	c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{
		Name: name, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "cni.networking.x-k8s.io", AllocationMode: "ExactCount", Count: 1},
	})
	if c.Status.Allocation == nil {
		c.Status.Allocation = &resourceapi.AllocationResult{}
	}
	c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
		Request: name, Driver: driver, Pool: "node-a", Device: "cni", ShareID: (*types.UID)(&share),
	})
}

// with wraps fields as parameters.
func with(fields string) string {
	return `{"apiVersion":"cni.networking.x-k8s.io/v1alpha1","kind":"CNIConfig",` + fields + `}`
}

const macvlan = `{"cniVersion":"1.0.0","name":"lan","plugins":[{"type":"macvlan","master":"eth0","ipam":{"type":"host-local","ranges":[[{"subnet":"10.10.1.0/24"}]]}}]}`

// node allows claims to use the plugins of macvlan.
var node = cniconfig.Policy{Driver: driver, Pool: "node-a", AllowClaimTypes: []string{"macvlan", "host-local"}}

// refused returns the error of Resolve.
func refused(t *testing.T, c *resourceapi.ResourceClaim, p cniconfig.Policy) *cniconfig.Refusal {
	t.Helper()
	networks, err := cniconfig.Resolve(c, p)
	if _, podErr := cniconfig.Pods(c); podErr != nil {
		networks, err = nil, podErr
	}
	refusal := difftest.As[*cniconfig.Refusal](t, err)
	if networks != nil {
		t.Errorf("it is refused, and yet gives %v", networks)
	}
	if refusal.Rule == "" || refusal.Remedy == "" {
		t.Errorf("no rule or no remedy: %+v", refusal)
	}
	return refusal
}

func resolve(t *testing.T, c *resourceapi.ResourceClaim, p cniconfig.Policy) []state.Attachment {
	t.Helper()
	networks, err := cniconfig.Resolve(c, p)
	difftest.Must(t, err)
	pods, err := cniconfig.Pods(c)
	if want := (state.Pod{Namespace: "default", Name: "demo", UID: "p1"}); err != nil || len(pods) != 1 || pods[0] != want {
		t.Errorf("pods %+v, %v, want %+v", pods, err, want)
	}
	return networks
}

func TestAPIExampleIsAcceptedInBothGroupsAndKinds(t *testing.T) {
	want := []state.Attachment{{
		Request: "macvlan-eth0", Pool: "kind-worker", Device: "cni", IfName: "net1", Network: "macvlan-eth0", CNIVersion: "1.0.0", Phase: state.Prepared,
		List: json.RawMessage(`{"cniVersion":"1.0.0","name":"macvlan-eth0","plugins":[{"ipam":{"ranges":[[{"subnet":"10.10.1.0/24"}]],"type":"host-local"},"master":"eth0","mode":"bridge","type":"macvlan"}]}`),
	}}
	example := difftest.Read(t, "testdata/example.yaml")
	for _, group := range []string{"cni.networking.x-k8s.io", "cni.dra.networking.x-k8s.io"} {
		for _, kind := range []string{"CNI", "CNIConfig"} {
			c := &resourceapi.ResourceClaim{}
			difftest.Must(t, yaml.UnmarshalStrict([]byte(strings.NewReplacer("GROUP", group, "KIND", kind).Replace(example)), c))
			p := cniconfig.Policy{Driver: driver, Pool: "kind-worker", AllowClaimTypes: []string{"macvlan", "host-local"}}
			networks, err := cniconfig.Resolve(c, p)
			difftest.Must(t, err)
			difftest.Equal(t, networks, want)
			pods, err := cniconfig.Pods(c)
			difftest.Must(t, err)
			difftest.Equal(t, pods, []state.Pod{{Namespace: "default", Name: "demo-a", UID: "680f0a77-8d0b-4e21-8599-62581e335ed6"}})

			p.AllowClaimTypes = nil
			difftest.Contains(t, refused(t, c, p).Remedy, "--allow-claim-config")
		}
	}
}

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
	longest := with(`"ifName":"net1","config":{"cniVersion":"1.0.0","name":"` + long[:128] + `","type":"macvlan","x":"~"}`)
	resolve(t, claim(t, "class "+strings.Replace(longest, "~", long[len(longest)-1:], 1)), node)
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
