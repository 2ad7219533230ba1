package devinfo_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo"
)

type raws = map[string]json.RawMessage

func parse(t *testing.T, data string) *devinfo.Info {
	t.Helper()
	i, err := devinfo.Parse([]byte(data))
	must(t, err)
	return i
}

func wantEncoding(t *testing.T, i *devinfo.Info, want string) {
	t.Helper()
	equal(t, "encoding", string(i.Encode()), want)
}

func TestParseFailsUnlessTextIsOneJSONObject(t *testing.T) {
	for in, want := range map[string]string{
		"":                                       "device-info is not JSON (Device Information Specification, 4): byte 0: unexpected end of JSON input",
		"{":                                      "device-info is not JSON (Device Information Specification, 4): byte 1: unexpected end of JSON input",
		"type: pci":                              "device-info is not JSON (Device Information Specification, 4): byte 2: invalid character 'y' in literal true (expecting 'r')",
		`{"type":"pci"} x`:                       "device-info is not JSON (Device Information Specification, 4): byte 16: invalid character 'x' after top-level value",
		"null":                                   "device-info is null: must be one JSON object (Device Information Specification, 4)",
		`[{"type":"pci"}]`:                       "device-info is a JSON array: must be one JSON object (Device Information Specification, 4)",
		`"pci"`:                                  "device-info is a JSON string: must be one JSON object (Device Information Specification, 4)",
		`{"version":"2.0.0"}`:                    `device-info version "2.0.0" is not supported: this package reads 1.x and implements 1.1.0 (Device Information Specification, 3.1.2)`,
		`{"version":"0.9.0"}`:                    `device-info version "0.9.0" is not supported: this package reads 1.x and implements 1.1.0 (Device Information Specification, 3.1.2)`,
		`{"version":"99999999999999999999.0.0"}`: `device-info version "99999999999999999999.0.0" is not supported: this package reads 1.x and implements 1.1.0 (Device Information Specification, 3.1.2)`,
		`{"x":"a,\"","x":{}}`:                    "device-info has a duplicate key: readers differ in which value they use",
		deep(101):                                "device-info has more than 100 levels",
		`{"version":"2"}`:                        `device-info version "2" is not supported: this package reads 1.x and implements 1.1.0 (Device Information Specification, 3.1.2)`,
	} {
		i, err := devinfo.Parse([]byte(in))
		if err == nil || err.Error() != want || i != nil {
			t.Errorf("Parse(%s)\ngot  %v\nwant %s", in, err, want)
		}
		if foreign := new(devinfo.VersionError); errors.As(err, &foreign) != strings.Contains(in, "version") || !strings.Contains(in, foreign.Version) {
			t.Errorf("Parse(%s): got %#v", in, err)
		}
	}
	parse(t, deep(100))
}

// deep returns device information with the given number of levels.
func deep(levels int) string {
	return `{"x":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

// Go's JSON decoder ignores letter case, folds the long s (ſ) to s, and uses the last of several such keys.
func TestKeyInOtherLetterCaseIsNeverWritten(t *testing.T) {
	const good = "{\n  \"pci\": {\n    \"pci-address\": \"a\"\n  }\n}\n"
	for _, text := range []string{`{"pci": {"pci-address": "a", "PCI-Address": 5}}`, `{"pci": {"pci-address": "a", "pci-addreſſ": ""}}`, `{"pci": {"pci-address": "a"}, "Vhost-User": {}}`} {
		i := parse(t, text)
		wantEncoding(t, i, good)
		for _, merged := range []*devinfo.Info{devinfo.Merge(i, nil, nil), devinfo.Merge(nil, i, nil), devinfo.Merge(nil, nil, i)} {
			if len(merged.Extra) > 0 || merged.PCI != nil && len(merged.PCI.Extra) > 0 {
				t.Errorf("%s: merged: %s", text, merged.Encode())
			}
		}
	}
}

func TestInfoAsStructFieldIsEncodedAndParsed(t *testing.T) {
	type status struct {
		Name   string        `json:"name"`
		Info   devinfo.Info  `json:"device-info"`
		Absent *devinfo.Info `json:"absent"`
	}
	const text = `{"name":"n","device-info":{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:00:03.0"}},"absent":null}`
	s := status{Info: *full()}
	must(t, json.Unmarshal([]byte(text), &s))
	got, err := json.Marshal(s)
	must(t, err, json.Unmarshal([]byte("null"), &s.Info))
	equal(t, "encoded again", []string{string(got), s.Info.PCI.Address}, []string{text, "0000:00:03.0"})
	fails(t, json.Unmarshal([]byte(`{"device-info": {"version": "2.0.0"}}`), &s), `version "2.0.0"`)
	equal(t, "it is left", s.Info.PCI != nil, true)
}

func TestParseReadsAtMostOneMiB(t *testing.T) {
	fill := func(size int) []byte { return []byte("{}" + strings.Repeat(" ", size-2)) }
	_, most := devinfo.Parse(fill(1 << 20))
	_, more := devinfo.Parse(fill(1<<20 + 1))
	must(t, most)
	fails(t, more, "device-info has more than 1 MiB")
}

// The whitespace around each value does not belong to it.
func TestUnknownValuesSurviveByteForByte(t *testing.T) {
	for _, value := range []string{
		"1e400", "-0.10", "12345678901234567890123", "null", "true", `""`, "{}", "[]",
		`"<b>&'</b>"`, `"\u003cb\u003e"`, `"\/"`, `"\ud800"`, "\"\u2028\"", "\"\xff\"",
		"[ 1 ,\n\t2\r]", "{ \"a\" :1, \"a\":\t2 , \"pci\" : null }", `{"b":1,"a":[{"type":"x"}]}`,
	} {
		in := "{\"x\" : \t" + value + "\n , \"pci\":{\"y\":\r\n" + value + "  } }"
		i := parse(t, in)
		for range 2 {
			equal(t, "at the top, and in pci", []string{string(i.Extra["x"]), string(i.PCI.Extra["y"])}, []string{value, value})
			wantEncoding(t, i, "{\n  \"pci\": {\n    \"y\": "+value+"\n  },\n  \"x\": "+value+"\n}\n")
			i = devinfo.Merge(i, nil, nil).Clone()
			i.Version = ""
		}
	}
}

// Known keys are in the order of Keys, and unknown keys are sorted.
func TestKnownKeysOfWrongTypeKeepValueAndPosition(t *testing.T) {
	wantEncoding(t, parse(t, `{"x": 0, "version": 1.10, "vdpa": [ ], "b": 3, "pci": {"c": 2, "rdma-device": ["mlx5_0", "mlx5_1"], "a": 1, "pci-address": "a"}, "type": {"t" : 1}}`), `{
  "type": {"t" : 1},
  "version": 1.10,
  "pci": {
    "pci-address": "a",
    "rdma-device": ["mlx5_0", "mlx5_1"],
    "a": 1,
    "c": 2
  },
  "vdpa": [ ],
  "b": 3,
  "x": 0
}
`)
}

// Encode does not escape HTML characters, and drops known keys and invalid values of Extra.
func TestEncodeDropsInvalidExtra(t *testing.T) {
	i := &devinfo.Info{Type: "<&>", Extra: raws{"<&>\n": json.RawMessage("1"),
		"type": json.RawMessage(`"vdpa"`), "memif": json.RawMessage(`1`), "bad": json.RawMessage(`{`), "empty": nil}}
	wantEncoding(t, i, "{\n  \"type\": \"<&>\",\n  \"<&>\\n\": 1\n}\n")
}

func TestNilInfoIsEmpty(t *testing.T) {
	var i *devinfo.Info
	wantEncoding(t, i, "{}\n")
	equal(t, "clone, and merged", []*devinfo.Info{i.Clone(), devinfo.Merge(i, i, i)}, []*devinfo.Info{nil, nil})
	equal(t, "violations", []int{len(i.Validate()), len(i.ValidateDeclared())}, []int{2, 0})
}

// full returns information with a value in every exported field. A field that is missing in its table is
// therefore noticed.
func full() *devinfo.Info {
	i := new(devinfo.Info)
	fill(reflect.ValueOf(i).Elem(), "v")
	return i
}

func fill(v reflect.Value, text string) {
	for n := range v.NumField() {
		f, name := v.Field(n), text+"."+v.Type().Field(n).Name
		switch {
		case !f.CanSet():
		case f.Kind() == reflect.String:
			f.SetString(name)
		case f.Kind() == reflect.Map:
			f.Set(reflect.ValueOf(raws{name: json.RawMessage(`[1]`)}))
		default:
			f.Set(reflect.New(f.Type().Elem()))
			fill(f.Elem(), name)
		}
	}
}

func TestEveryFieldIsEncodedReadBackAndCloned(t *testing.T) {
	i := full()
	same(t, "original", i, i)
	c := i.Clone()
	same(t, "clone", c, i)
	c.PCI.Address, c.VDPA.Path, c.VhostUser.Mode, c.Memif.Role = "", "", "", ""
	c.Extra["v.Extra"][1] = '2'
	c.PCI.Extra["new"] = nil
	equal(t, "the original after a change of the clone", i, full())
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// fails fails the test unless err is an error that contains the text.
func fails(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s", err, text)
	}
}

// equal fails the test if got and want differ. It shows information as JSON.
func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	for _, v := range []*any{&got, &want} {
		if i, ok := (*v).(*devinfo.Info); ok {
			*v = string(i.Encode())
		}
	}
	t.Errorf("%s: got\n%+v\nwant\n%+v", what, got, want)
}
