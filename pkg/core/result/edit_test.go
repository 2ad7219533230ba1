package result_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/core/result"
	"devinfo-cni.io/test/difftest"
)

func TestFindMatchesNameAndSandbox(t *testing.T) {
	const list = `{"cniVersion": "1.1.0", "interfaces": [
		{"name": "net1"},
		{"name": "net1", "sandbox": "/other", "pciID": "a"},
		{"name": "net1", "sandbox": "/ns", "pciID": "b", "socketPath": "/s"},
		{"name": "net1", "sandbox": "/ns", "pciID": "c"},
		{"name": "net2", "sandbox": "/proc/1/ns/net"},
		{"name": "host", "sandbox": ""}
	]}`
	for _, test := range []struct {
		name, sandbox string
		want          result.Interface
		ok            bool
	}{
		{"net1", "/ns", result.Interface{Name: "net1", Sandbox: "/ns", PCIID: "b", SocketPath: "/s"}, true},
		{"net1", "/other", result.Interface{Name: "net1", Sandbox: "/other", PCIID: "a"}, true},
		{"net1", "/third", result.Interface{Name: "net1", Sandbox: "/other", PCIID: "a"}, true}, // the first in any sandbox
		{"net2", "/ns", result.Interface{Name: "net2", Sandbox: "/proc/1/ns/net"}, true},
		{"host", "/ns", result.Interface{}, false},
		{"host", "", result.Interface{}, false}, // an interface of the host is not in the pod
		{"net3", "/ns", result.Interface{}, false},
		{"", "/ns", result.Interface{}, false},
	} {
		for _, version := range []string{"1.1.0", "0.4.0"} { // 0.4.0 has no pciID
			if got, ok := mustParse(t, list, version).Find(test.name, test.sandbox); got != test.want || ok != test.ok {
				t.Errorf("%s in %s: %+v, %v", test.name, test.sandbox, got, ok)
			}
		}
	}
	for _, text := range []string{``, `null`, `{}`, `5`, `{"interfaces": 5}`, `{"interfaces": [null]}`, `{"ip4": {}}`} {
		r, _ := result.Parse(json.RawMessage(text), "1.1.0") // nil if the text is invalid
		if got, ok := r.Find("net1", "/ns"); ok {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestIdentifySetsEmptyKeys(t *testing.T) {
	const text = `{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/ns"%s}, {"name": "net1"}, {"name": "net2", "sandbox": "/ns"}], "ips": []}`
	for _, test := range []struct {
		has  string
		ids  [][2]string // pciID and socket path of each call
		want string
	}{
		{``, [][2]string{{"0000:01:00.2", ""}}, `, "pciID": "0000:01:00.2"`},
		{``, [][2]string{{"", "/s"}}, `, "socketPath": "/s"`},
		{``, [][2]string{{"0000:01:00.2", "/s"}}, `, "pciID": "0000:01:00.2", "socketPath": "/s"`},
		{``, [][2]string{{"a", ""}, {"", "/s"}, {"b", "/t"}}, `, "pciID": "a", "socketPath": "/s"`},
		{`, "pciID": ""`, [][2]string{{"0000:01:00.2", ""}}, `, "pciID": "0000:01:00.2"`},
		{`, "pciID": "x"`, [][2]string{{"0000:01:00.2", "/s"}}, `, "pciID": "x", "socketPath": "/s"`},
		{`, "mac": "02:00:00:00:00:01", "mtu": 1500, "more": {"a": [1]}`, [][2]string{{"0000:01:00.2", ""}},
			`, "mac": "02:00:00:00:00:01", "mtu": 1500, "more": {"a": [1]}, "pciID": "0000:01:00.2"`},
	} {
		got := parse(t, fmt.Sprintf(text, test.has), "1.1.0", func(r *result.Result) {
			for _, ids := range test.ids {
				r.Identify("net1", "/ns", ids[0], ids[1])
			}
		})
		same(t, test.has, got, fmt.Sprintf(text, test.want))
	}
}

func TestIdentifyKeepsTextIfItSetsNoKey(t *testing.T) {
	for _, version := range versions {
		text := ` {"cniVersion": "` + version + `", "interfaces" : [ {"name": "net1", "sandbox": "/ns", "pciID": "x", "socketPath": "/x"} ] }`
		for _, args := range [][4]string{{"net1", "/ns", "y", "/y"}, {"net1", "/ns", "", ""}, {"net2", "/ns", "y", "/y"}} {
			got := parse(t, text, version, func(r *result.Result) {
				r.Identify(args[0], args[1], args[2], args[3])
			})
			if got != text {
				t.Errorf("%v: %s", args, got)
			}
		}
	}
	for _, version := range versions[:6] { // versions before 1.1.0
		text := `{"cniVersion": "` + version + `",  "interfaces": [{"name": "net1", "sandbox": "/ns"}]}`
		got := parse(t, text, version, func(r *result.Result) {
			r.Identify("net1", "/ns", "y", "/y")
		})
		if got != text {
			t.Errorf("%s: %s", version, got)
		}
	}
}

func TestSandboxedInterfaceIsAddedIfMissing(t *testing.T) {
	added := `{"name": "net1", "sandbox": "/ns"}`
	for _, version := range versions[2:] {
		for before, after := range map[string]string{
			``: added, `{"name": "veth1"}`: `{"name": "veth1"}, ` + added, `{"name": "br", "sandbox": ""}`: `{"name": "br", "sandbox": ""}, ` + added,
			`{"name": "net1"}`:                            added, // the addresses of net1 are not changed
			`{"name": "eth9", "sandbox": "/x"}`:           `{"name": "eth9", "sandbox": "/x"}`,
			`{"name": "a"}, {"name": "b", "sandbox":"x"}`: `{"name": "a"}, {"name": "b", "sandbox":"x"}`,
		} {
			const text = `{"cniVersion": "%s", "interfaces": [%s], "ips": [], "unknown": {"b": 1, "a": [2.50]}}`
			got := parse(t, fmt.Sprintf(text, version, before), version, func(r *result.Result) {
				r.EnsureSandboxed("net1", "/ns")
				r.EnsureSandboxed("net1", "/ns")
			})
			same(t, before, got, fmt.Sprintf(text, version, after))
			if before == after && got != fmt.Sprintf(text, version, before) {
				t.Errorf("changed to %s", got)
			}
			if !strings.Contains(got, "2.50") {
				t.Errorf("a number was rewritten: %s", got)
			}
		}
		got := edit(result.New(version), func(r *result.Result) { r.EnsureSandboxed(`n"1`, "/<ns>") })
		same(t, "new", got, `{"cniVersion": "`+version+`", "interfaces": [{"name": "n\"1", "sandbox": "/<ns>"}]}`)
		if _, err := create.Create(version, []byte(got)); err != nil {
			t.Errorf("%s: the library refuses it: %v", version, err)
		}
	}
}

const chain = `{"cniVersion": "1.0.0",
	"interfaces": [{"name": "veth1"}, {"name": "eth0", "sandbox": "/run/netns/pod"}, {"name": "eth1", "sandbox": "/run/netns/pod"}],
	"ips": [{"address": "10.0.0.2/24", "interface": 1}, {"address": "fd00::0:2/64", "interface": 1}, {"address": "10.9.0.2/24"}]}`

// A delegate's author could otherwise fill the node's log.
func TestLostListsAtMostTenItems(t *testing.T) {
	text := `{"interfaces": [{"name": "` + strings.Repeat("é", 1000) + `"}` + strings.Repeat(`, {"name": "a"}`, 500) + `]}`
	lost := mustParse(t, text, "1.1.0").Lost(result.New("1.1.0"))
	if len(lost) != 11 || lost[10] != "491 more" || len(lost[0]) > 304 || !utf8.ValidString(lost[0]) {
		t.Errorf("%.400q", lost)
	}
}

func TestLostListsMissingInterfacesAndAddresses(t *testing.T) {
	const eth0 = `{"name": "eth0", "sandbox": "/run/netns/pod"}`
	for name, test := range map[string]struct {
		before, later string
		want          []string
	}{
		"nothing": {chain, chain, nil},
		"nothing, in another order, spelling and version": {chain, `{"cniVersion": "1.1.0",
			"interfaces": [{"name": "net1", "sandbox": "/n"}, {"name": "eth1", "sandbox": "/n"}, {"name": "eth0", "sandbox": "/n"}, {"name": "veth1", "mac": "x"}],
			"ips": [{"address": "10.9.0.2/24", "interface": 0}, {"address": "FD00:0::2/64", "interface": 2}, {"address": "10.0.0.2/24"}]}`, nil},
		"all of it": {chain, `{"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/pod"}]}`, []string{
			"interface veth1", "interface eth0 in /run/netns/pod", "interface eth1 in /run/netns/pod",
			"address 10.0.0.2/24 of eth0 in /run/netns/pod", "address fd00::2/64 of eth0 in /run/netns/pod", "address 10.9.0.2/24",
		}},
		"addresses": {chain, `{"cniVersion": "1.0.0", "interfaces": [{"name": "veth1"}, ` + eth0 + `, {"name": "eth1", "sandbox": "/run/netns/pod"}],
			"ips": [{"address": "10.0.0.3/24", "interface": 2}, {"address": "10.9.0.2/24"}]}`, []string{
			"address 10.0.0.2/24 of eth0 in /run/netns/pod", "address fd00::2/64 of eth0 in /run/netns/pod",
		}},
		"the host's side of the same name": {chain, `{"cniVersion": "1.0.0", "interfaces": [{"name": "veth1", "sandbox": "/run/netns/pod"}, ` + eth0 + `, {"name": "eth1", "sandbox": "/n"}],
			"ips": [{"address": "10.0.0.2/24"}, {"address": "fd00::2/64"}, {"address": "10.9.0.2/24"}]}`, []string{"interface veth1"}},
		"what an old version has no room for": {chain, `{"cniVersion": "0.2.0", "ip4": {"ip": "10.9.0.2/24"}}`, []string{
			"interface veth1", "interface eth0 in /run/netns/pod", "interface eth1 in /run/netns/pod",
			"address 10.0.0.2/24 of eth0 in /run/netns/pod", "address fd00::2/64 of eth0 in /run/netns/pod",
		}},
		"an address of an old version": {`{"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24"}, "ip6": {"ip": "fd00::2/64"}}`,
			`{"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.2/24"}, "ip6": {"ip": "FD00::2/64"}}`, []string{"address 10.0.0.2/24"}},
	} {
		difftest.Same(t, name, mustParse(t, test.before, "1.1.0").Lost(mustParse(t, test.later, "1.1.0")), test.want)
	}
}

func TestNilResultLosesNothing(t *testing.T) {
	var none *result.Result
	for _, text := range []string{`{"cniVersion": "1.0.0"}`, `{"cniVersion": "1.0.0", "interfaces": [null, {}], "ips": [null, {"interface": 7}]}`, `{"cniVersion": "1.0.0", "ip4": "x"}`} {
		r := mustParse(t, text, "1.0.0")
		if lost := append(append(r.Lost(none), none.Lost(r)...), result.New("1.0.0").Lost(r)...); lost != nil {
			t.Errorf("%s: %q", text, lost)
		}
	}
	if got := mustParse(t, `{"cniVersion": "1.0.0", "interfaces": [{"name": "a"}], "ips": [{"address": "10.0.0.2/24", "interface": -1}, {"address": "10.0.0.3/24", "interface": 1}]}`, "1.0.0").Lost(none); !cmp.Equal(got, []string{"interface a", "address 10.0.0.2/24", "address 10.0.0.3/24"}) {
		t.Errorf("%q", got)
	}
}

func TestHasFindsInterfaceByRuleOfFind(t *testing.T) {
	var none *result.Result
	if has, ok := none.Has("net1", "/ns"); has || !ok {
		t.Errorf("no result: %v, %v", has, ok)
	}
	for text, want := range map[string][2]bool{
		`{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/ns"}]}`:           {true, true},
		`{"cniVersion": "0.3.0", "interfaces": [{"name": "net1", "sandbox": "/another/path"}]}`: {true, true},
		`{"cniVersion": "1.1.0", "interfaces": [{"name": "net1"}]}`:                             {false, true}, // on the host
		`{"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/ns"}]}`:           {false, true},
		`{"cniVersion": "1.1.0"}`:                               {false, true},
		`{"interfaces": []}`:                                    {false, true},
		`{"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24"}}`: {false, false},
		`{"cniVersion": "0.2.0", "interfaces": [{"name": "net1", "sandbox": "/ns"}], "dns": {}}`: {true, true},
	} {
		for _, version := range versions {
			has, ok := mustParse(t, text, version).Has("net1", "/ns")
			if [2]bool{has, ok} != want {
				t.Errorf("%s as %s: %v, %v", text, version, has, ok)
			}
		}
	}
}
