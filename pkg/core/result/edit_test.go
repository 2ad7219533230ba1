package result_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"

	"devinfo-cni.io/pkg/core/result"
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

// Each line of the file is a result, without its version. The output is the result after the calls of an ADD, which change
// nothing the second time, by the versions in which it is the same.
func TestEditsMatchGoldenFile(t *testing.T) {
	goldentest.Lines(t, "testdata/edits.txt", func(text string) (output []string) {
		last := ""
		for _, version := range versions {
			for _, ids := range [][2]string{{"0000:01:00.2", ""}, {"", "/s"}} {
				r, before := result.New(version), `{"cniVersion": "`+version+`"`+text+`}`
				if text != "none" {
					r = mustParse(t, before, version)
				}
				for range 2 {
					r.EnsureSandboxed("net1", "/<ns>")
					r.Identify("net1", "/<ns>", ids[0], ids[1])
				}
				got := string(r.JSON())
				if _, err := create.Create(version, []byte(got)); err != nil {
					t.Errorf("%s: the library refuses %s: %v", version, got, err)
				}
				if got == before {
					got = "the same text"
				}
				got = strings.Replace(got, `"cniVersion":"`+version+`"`, "", 1)
				if got != last {
					output, last = append(output, version+": "+got), got
				}
			}
		}
		return output
	})
}

const chain = `{"cniVersion": "1.0.0",
	"interfaces": [{"name": "veth1"}, {"name": "eth0", "sandbox": "/run/netns/pod"}, {"name": "eth1", "sandbox": "/run/netns/pod"}],
	"ips": [{"address": "10.0.0.2/24", "interface": 1}, {"address": "fd00::0:2/64", "interface": 1}, {"address": "10.9.0.2/24"}]}`
