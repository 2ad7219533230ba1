package result_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"

	"devinfo-cni.io/pkg/result"
)

func TestFindTakesTheNameInTheSandbox(t *testing.T) {
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
		{"net1", "/third", result.Interface{Name: "net1", Sandbox: "/other", PCIID: "a"}, true}, // the first that has any
		{"net2", "/ns", result.Interface{Name: "net2", Sandbox: "/proc/1/ns/net"}, true},
		{"host", "/ns", result.Interface{}, false},
		{"host", "", result.Interface{}, false}, // a host's interface is none of the pod's
		{"net3", "/ns", result.Interface{}, false},
		{"", "/ns", result.Interface{}, false},
	} {
		for _, version := range []string{"1.1.0", "0.4.0"} { // which has no pciID
			if got, ok := mustParse(t, list, version).Find(test.name, test.sandbox); got != test.want || ok != test.ok {
				t.Errorf("%s in %s: %+v, %v", test.name, test.sandbox, got, ok)
			}
		}
	}
	for _, text := range []string{``, `null`, `{}`, `5`, `{"interfaces": 5}`, `{"interfaces": [null]}`, `{"ip4": {}}`} {
		r, _ := result.Parse(json.RawMessage(text), "1.1.0") // nil for what is no result
		if got, ok := r.Find("net1", "/ns"); ok {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestIdentifySetsWhatIsEmpty(t *testing.T) {
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

func TestIdentifyThatHasNothingToSetChangesNothing(t *testing.T) {
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
	for _, version := range versions[:6] { // 1.1.0 brought the keys
		text := `{"cniVersion": "` + version + `",  "interfaces": [{"name": "net1", "sandbox": "/ns"}]}`
		got := parse(t, text, version, func(r *result.Result) {
			r.Identify("net1", "/ns", "y", "/y")
		})
		if got != text {
			t.Errorf("%s: %s", version, got)
		}
	}
}

func TestSandboxedInterfaceIsAddedOnlyIfThereIsNone(t *testing.T) {
	added := `{"name": "net1", "sandbox": "/ns"}`
	for _, version := range versions[2:] {
		for before, after := range map[string]string{
			``: added, `{"name": "veth1"}`: `{"name": "veth1"}, ` + added, `{"name": "br", "sandbox": ""}`: `{"name": "br", "sandbox": ""}, ` + added,
			`{"name": "net1"}`:                            `{"name": "net1"}, ` + added,
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
