package result_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"

	"devinfo-cni.io/pkg/core/result"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

var versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

func isOld(version string) bool { return version < "0.3.0" }

// parse returns the text of a result as another version.
func parse(t *testing.T, text, version string) string {
	return string(mustParse(t, text, version).JSON())
}

// same compares the meaning of two JSON texts.
func same(t *testing.T, what, got, want string) {
	t.Helper()
	var g, w any
	difftest.Must(t, json.Unmarshal([]byte(got), &g), json.Unmarshal([]byte(want), &w))
	difftest.Same(t, what, g, w)
}

// sample returns the same result in each version.
func sample(version string) string {
	switch {
	case isOld(version):
		return `{"cniVersion": "` + version + `", "ip4": {"ip": "10.0.0.2/24", "gateway": "10.0.0.1", "routes": [{"dst": "0.0.0.0/0"}]}, "dns": {"search": ["x"]}}`
	case version < "1.0.0":
		return `{"cniVersion": "` + version + `", "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "/ns"}],
			"ips": [{"version": "4", "interface": 0, "address": "10.0.0.2/24", "gateway": "10.0.0.1"}], "routes": [{"dst": "0.0.0.0/0"}], "dns": {"search": ["x"]}}`
	}
	return `{"cniVersion": "` + version + `", "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "/ns"}],
		"ips": [{"interface": 0, "address": "10.0.0.2/24", "gateway": "10.0.0.1"}], "routes": [{"dst": "0.0.0.0/0"}], "dns": {"search": ["x"]}}`
}

// converted returns the expected conversion of the sample. Old versions have no interfaces.
func converted(from, to string) string {
	text := sample(to)
	if isOld(from) && !isOld(to) {
		text = strings.ReplaceAll(text, `"interface": 0, `, ``)
		before, after, _ := strings.Cut(text, `"interfaces": [`)
		_, after, _ = strings.Cut(after, `],`)
		text = before + after
	}
	return text
}

func TestResultIsConvertedBetweenAllVersions(t *testing.T) {
	for _, from := range versions {
		for _, to := range versions {
			got := parse(t, sample(from), to)
			same(t, from+" to "+to, got, converted(from, to))
			if _, err := create.Create(to, []byte(got)); err != nil {
				t.Errorf("%s to %s: the library refuses it: %v", from, to, err)
			}
			if from == to && got != sample(from) {
				t.Errorf("%s: changed to %s", from, got)
			}
		}
	}
}

func TestResultWithoutAddressIsEmptyInOldVersions(t *testing.T) {
	for _, from := range versions[2:] {
		for _, to := range versions[:2] {
			text := `{"cniVersion": "` + from + `", "interfaces": [{"name": "net1", "sandbox": "/ns"}]}`
			same(t, from+" to "+to, parse(t, text, to), `{"cniVersion": "`+to+`", "dns": {}}`)
		}
	}
}

func mustParse(t *testing.T, text, version string) *result.Result {
	t.Helper()
	r, err := result.Parse(json.RawMessage(text), version)
	difftest.Must(t, err)
	return r
}

func TestResultHasAtMost1024InterfacesAndAddresses(t *testing.T) {
	for _, text := range []string{`{"interfaces": [%s]}`, `{"ips": [%s]}`} {
		for n, ok := range map[int]bool{1024: true, 1025: false} {
			entry := `{"name": "a", "address": "10.0.0.1/8"},`
			_, err := result.Parse(fmt.Appendf(nil, text, strings.TrimSuffix(strings.Repeat(entry, n), ",")), "1.0.0")
			if ok != (err == nil) || !ok && !strings.Contains(err.Error(), "at most 1024 of each are supported") {
				t.Errorf("%s: %d: %v", text, n, err)
			}
		}
	}
}

func TestErrorOfInvalidResultNamesEntryOrVersions(t *testing.T) {
	goldentest.Lines(t, "testdata/errors.txt", func(text string) []string {
		_, err := result.Parse(json.RawMessage(text), "1.1.0")
		return []string{fmt.Sprint(err)}
	})
}

func FuzzParse(f *testing.F) {
	for _, version := range versions {
		f.Add([]byte(sample(version)), "1.1.0")
		f.Add([]byte(sample("1.1.0")), version)
	}
	f.Add([]byte(`null`), "1.1.0")
	f.Add([]byte(`{"interfaces": [null, {"name": "net1", "sandbox": "/ns"}]}`), "1.1.0")
	f.Add([]byte(`{"cniVersion": "0.2.0", "ip4": null}`), "0.3.1")
	f.Add([]byte(`{"ipS": {}}`), "0.1.0")
	f.Add([]byte(chain), "0.4.0")
	f.Add([]byte(`{"cniVersion": "1.0.0", "interfaces": [{}], "ips": [{"address": "fd00::0:1/64", "interface": 0}, {"interface": -1}]}`), "1.0.0")
	f.Fuzz(func(t *testing.T, data []byte, version string) {
		if !slices.Contains(versions, version) {
			return // refused before parsing
		}
		r, err := result.Parse(data, version)
		r.Find("net1", "/ns")
		r.Has("net1", "/ns")
		if err != nil {
			return
		}
		before := size(t, rewrite(t, r))
		r.EnsureSandboxed("net1", "/ns")
		r.Identify("net1", "/ns", "0000:01:00.2", "/s")
		if after := size(t, rewrite(t, r)); after[0] < before[0] || after[1] != before[1] {
			t.Errorf("interfaces and addresses before an edit: %v, after: %v", before, after)
		}
	})
}

// size returns how many interfaces and addresses a result has.
func size(t *testing.T, r *result.Result) [2]int {
	t.Helper()
	var v struct {
		Interfaces []json.RawMessage
		IPs        json.RawMessage
	}
	var ips []json.RawMessage
	difftest.Must(t, json.Unmarshal(r.JSON(), &v))
	_ = json.Unmarshal(v.IPs, &ips) // before version 0.3.0 the key may have any value
	return [2]int{len(v.Interfaces), len(ips)}
}

// rewrite writes and parses a result. Writing it again must give the same text.
func rewrite(t *testing.T, r *result.Result) *result.Result {
	t.Helper()
	text := r.JSON()
	var v struct{ CNIVersion string }
	difftest.Must(t, json.Unmarshal(text, &v))
	again, err := result.Parse(text, v.CNIVersion)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	difftest.Equal(t, string(again.JSON()), string(text))
	return again
}
