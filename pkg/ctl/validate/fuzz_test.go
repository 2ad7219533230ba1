package validate_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/validate"
)

// texts gives the texts of the cases, and the specification's examples.
func texts(f *testing.F) (list [][]byte) {
	f.Helper()
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(cases) == 0 {
		f.Fatalf("cases: %q, %v", cases, err)
	}
	for _, name := range cases {
		archive, err := txtar.ParseFile(name)
		must(f, err)
		for n := 0; n < len(archive.Files); n += 2 {
			list = append(list, archive.Files[n].Data)
		}
	}
	for _, name := range examples(f) {
		data, err := os.ReadFile(name)
		must(f, err)
		list = append(list, data)
	}
	return list
}

// findings checks a text of a kind, and gives what is found below a path, with the path
// as if it were the whole text, and without lines.
func findings(t *testing.T, text []byte, kind validate.Kind, below string) (list []validate.Finding) {
	t.Helper()
	r, err := checker.Check(text, kind)
	must(t, err)
	for _, f := range r.Findings {
		if rest, ok := strings.CutPrefix(f.Path, below); ok {
			f.Path, f.Line, f.Column = "$"+rest, 0, 0
			list = append(list, f)
		}
	}
	return list
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return data
}

// A device-info map is judged alike by itself and in a network-status, as JSON and in a
// pod's annotation, and as the library judges it.
func FuzzNetworkStatus(f *testing.F) {
	for _, text := range texts(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) != nil || object == nil {
			return
		}
		text = marshal(t, json.RawMessage(text)) // without what JSON leaves out
		alone := findings(t, text, validate.DeviceInfo, "$")
		list := marshal(t, []map[string]any{{"name": "n", "device-info": json.RawMessage(text)}})
		if diff := cmp.Diff(alone, findings(t, list, validate.NetworkStatus, "$[0].device-info")); diff != "" {
			t.Errorf("in a list (-alone +there):\n%s", diff)
		}
		const annotation = "k8s.v1.cni.cncf.io/network-status"
		pod := marshal(t, map[string]any{"kind": "Pod", "metadata": map[string]any{"annotations": map[string]string{annotation: string(list)}}})
		if diff := cmp.Diff(alone, findings(t, pod, validate.NetworkStatus, `$.metadata.annotations["`+annotation+`"][0].device-info`)); diff != "" {
			t.Errorf("in a pod (-alone +there):\n%s", diff)
		}
		info, err := devinfo.Parse(text)
		good := err == nil && len(info.Validate().Errors()) == 0
		report := validate.Report{Findings: alone}
		repeated := strings.Contains(string(marshal(t, alone)), "more than once")
		if good != (report.Errors() == 0) && !repeated {
			t.Errorf("the library says %v, and here it is %+v", err, alone)
		}
	})
}

// A configuration that our plugin would refuse is found wrong, by itself and in a
// NetworkAttachmentDefinition.
func FuzzDefinition(f *testing.F) {
	for _, text := range texts(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) != nil || object == nil {
			return
		}
		delete(object, "plugins")
		delete(object, "kind")
		for key, value := range map[string]string{"type": `"devinfo"`, "name": `"n"`, "cniVersion": `"1.0.0"`} {
			object[key] = json.RawMessage(value)
		}
		text = marshal(t, object)
		cfg, err := config.Parse(text)
		must(t, err)
		nad := marshal(t, map[string]any{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
			"metadata": map[string]string{"name": "n"}, "spec": map[string]string{"config": string(text)}})
		for _, here := range []struct {
			text  []byte
			below string
		}{{text, "$"}, {nad, "$.spec.config"}} {
			for _, problem := range cfg.Problems {
				wrong := false
				for _, f := range findings(t, here.text, validate.CNIConfig, here.below) {
					wrong = wrong || !f.Warning && f.Path == "$."+problem.Key
				}
				if !wrong {
					t.Errorf("%s is not found wrong in %s: %v", problem.Key, here.text, problem)
				}
			}
		}
	})
}
