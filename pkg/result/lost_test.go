package result_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/result"
)

const chain = `{"cniVersion": "1.0.0",
	"interfaces": [{"name": "veth1"}, {"name": "eth0", "sandbox": "/run/netns/pod"}, {"name": "eth1", "sandbox": "/run/netns/pod"}],
	"ips": [{"address": "10.0.0.2/24", "interface": 1}, {"address": "fd00::0:2/64", "interface": 1}, {"address": "10.9.0.2/24"}]}`

func TestWhatALaterResultHasLost(t *testing.T) {
	const eth0 = `{"name": "eth0", "sandbox": "/run/netns/pod"}`
	for name, test := range map[string]struct {
		later string
		want  []string
	}{
		"nothing": {chain, nil},
		"nothing, in another order, spelling and version": {`{"cniVersion": "1.1.0",
			"interfaces": [{"name": "net1", "sandbox": "/n"}, {"name": "eth1", "sandbox": "/n"}, {"name": "eth0", "sandbox": "/n"}, {"name": "veth1", "mac": "x"}],
			"ips": [{"address": "10.9.0.2/24", "interface": 0}, {"address": "FD00:0::2/64", "interface": 2}, {"address": "10.0.0.2/24"}]}`, nil},
		"all of it": {`{"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/pod"}]}`, []string{
			"interface veth1", "interface eth0 in /run/netns/pod with 10.0.0.2/24, fd00::2/64", "interface eth1 in /run/netns/pod", "address 10.9.0.2/24",
		}},
		"addresses": {`{"cniVersion": "1.0.0", "interfaces": [{"name": "veth1"}, ` + eth0 + `, {"name": "eth1", "sandbox": "/run/netns/pod"}],
			"ips": [{"address": "10.0.0.2/24", "interface": 2}, {"address": "10.9.0.2/24"}]}`, []string{
			"address 10.0.0.2/24 of eth0 in /run/netns/pod", "address fd00::2/64 of eth0 in /run/netns/pod",
		}},
		"the host's side of the same name": {`{"cniVersion": "1.0.0", "interfaces": [{"name": "veth1", "sandbox": "/run/netns/pod"}, ` + eth0 + `, {"name": "eth1", "sandbox": "/n"}],
			"ips": [{"address": "10.0.0.2/24"}, {"address": "fd00::2/64"}, {"address": "10.9.0.2/24"}]}`, []string{"interface veth1"}},
		"what an old version has no room for": {`{"cniVersion": "0.2.0", "ip4": {"ip": "10.9.0.2/24"}}`, []string{
			"interface veth1", "interface eth0 in /run/netns/pod with 10.0.0.2/24, fd00::2/64", "interface eth1 in /run/netns/pod",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := mustParse(t, chain, "1.1.0").Lost(mustParse(t, test.later, "1.1.0"))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnOldResultLosesAddressesOnly(t *testing.T) {
	old := mustParse(t, `{"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24"}, "ip6": {"ip": "fd00::2/64"}}`, "0.2.0")
	later := mustParse(t, `{"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.2/24"}, "ip6": {"ip": "FD00::2/64"}}`, "0.2.0")
	if diff := cmp.Diff([]string{"address 10.0.0.2/24"}, old.Lost(later)); diff != "" {
		t.Error(diff)
	}
}

func TestNothingHasNothingToLose(t *testing.T) {
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

func TestHasTheInterfaceAlready(t *testing.T) {
	var none *result.Result
	if has, ok := none.Has("net1", "/ns"); has || !ok {
		t.Errorf("no result: %v, %v", has, ok)
	}
	for text, want := range map[string][2]bool{
		`{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/ns"}]}`:           {true, true},
		`{"cniVersion": "0.3.0", "interfaces": [{"name": "net1", "sandbox": "/another/path"}]}`: {true, true},
		`{"cniVersion": "1.1.0", "interfaces": [{"name": "net1"}]}`:                             {false, true}, // the host's
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
