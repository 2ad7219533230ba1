package result_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"

	"devinfo-cni.io/pkg/core/result"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// Each line of the file is a result. Its output is what Find and Has say of interfaces, and is the same in each version.
func TestFindAndHasMatchNameAndSandbox(t *testing.T) {
	goldentest.Lines(t, "testdata/find.txt", func(text string) (output []string) {
		for _, version := range versions {
			var now []string
			r, _ := result.Parse(json.RawMessage(text), version) // nil if the text is invalid
			for _, key := range [][2]string{{"net1", "/ns"}, {"net1", "/other"}, {"net1", "/third"}, {"net2", "/ns"}, {"host", "/ns"}, {"host", ""}, {"net3", "/ns"}, {"", "/ns"}} {
				found, ok := r.Find(key[0], key[1])
				has, known := r.Has(key[0], key[1])
				if ok || !known {
					now = append(now, fmt.Sprintf("%s in %s: %+v; has: %v, known: %v", key[0], key[1], found, has, known))
				} else if has {
					t.Errorf("%s has %s in %s, but Find does not find it", text, key[0], key[1])
				}
			}
			if output != nil && !slices.Equal(now, output) {
				t.Errorf("%s: version %s: got %q, want %q", text, version, now, output)
			}
			output = now
		}
		return output
	})
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
			difftest.Equal(t, got, text)
		}
	}
	for _, version := range versions[:6] { // versions before 1.1.0
		text := `{"cniVersion": "` + version + `",  "interfaces": [{"name": "net1", "sandbox": "/ns"}]}`
		got := parse(t, text, version, func(r *result.Result) {
			r.Identify("net1", "/ns", "y", "/y")
		})
		difftest.Same(t, version, got, text)
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
			difftest.Contains(t, got, "2.50") // no number is rewritten
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
