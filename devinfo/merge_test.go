package devinfo_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo"
)

// FuzzParse checks that encoding and parsing again gives the same information, and that no input makes a method panic.
func FuzzParse(f *testing.F) {
	for name := range examples {
		data, err := os.ReadFile(npwg + name)
		must(f, err)
		f.Add(data)
	}
	violations, err := os.ReadFile(npwg + "violations.txtar")
	must(f, err)
	for line := range strings.Lines(string(violations)) {
		if strings.HasPrefix(line, "{") {
			f.Add([]byte(line))
		}
	}
	f.Add(full().Encode())
	f.Add([]byte("{\"x\" : 1e400, \"pci\":{\"y\":\"<\xff\\ud800\"}, \"memif\": [ ], \"Memif\":{\"mode\":\"punt\"}}"))

	f.Fuzz(func(t *testing.T, data []byte) {
		i, err := devinfo.Parse(data)
		if err != nil {
			return
		}
		kept := true // whether Encode writes every key that Parse read
		for _, v := range append(i.Validate(), i.ValidateDeclared()...) {
			if s := v.String(); v.Path == "" || v.Rule == "" || strings.Contains(s, "\n") {
				t.Errorf("violation %q", s)
			}
			kept = kept && !strings.HasPrefix(v.Rule, "must be spelled")
		}
		if kept {
			same(t, "encoded", i, i)
			same(t, "cloned", i.Clone(), i)
		}
	})
}

// same compares i with j, and then i encoded and parsed again with j.
func same(t *testing.T, what string, i, j *devinfo.Info) {
	t.Helper()
	if !reflect.DeepEqual(i, j) {
		t.Fatalf("%s: got\n%swant\n%s", what, i.Encode(), j.Encode())
	}
	data := i.Encode()
	if len(data) > 1<<20 {
		return
	}
	back, err := devinfo.Parse(data)
	if err != nil {
		t.Fatalf("%s: %v:\n%s", what, err, data)
	}
	if !reflect.DeepEqual(back, j) {
		t.Fatalf("%s: read back\n%swant\n%s", what, back.Encode(), j.Encode())
	}
}

// FuzzMerge merges three unrelated layers. It checks that the result survives encoding and parsing, that
// merging again changes nothing, and that Merge does not change its arguments.
func FuzzMerge(f *testing.F) {
	layers := []string{"", "{}", string(full().Encode()), `{"type": "vdpa", "vdpa": {"path": 5, "driver": "vhost"}}`,
		`{"type": "memif", "version": "1.0.0", "memif": {"mode": "punt", "role": ""}, "pci": []}`}
	for name := range examples {
		data, err := os.ReadFile(npwg + name)
		must(f, err)
		layers = append(layers, string(data))
	}
	for _, c := range merges {
		f.Add(c.existing, c.found, c.declared)
	}
	for n := range layers {
		f.Add(layers[n], layers[(n+1)%len(layers)], layers[(n+2)%len(layers)])
		f.Add(layers[n], layers[n], "")
	}
	f.Fuzz(func(t *testing.T, existing, found, declared string) {
		var i [3]*devinfo.Info
		for n, text := range []string{existing, found, declared} {
			i[n], _ = devinfo.Parse([]byte(text)) // an invalid text is an absent layer
		}
		var before [3]*devinfo.Info
		for n := range i {
			before[n] = i[n].Clone()
		}
		m := devinfo.Merge(i[0], i[1], i[2])
		if !reflect.DeepEqual(i, before) {
			t.Error("the layers have changed")
		}
		if m == nil {
			if i != ([3]*devinfo.Info{}) {
				t.Error("the layers are lost")
			}
			return
		}
		same(t, "merged", m, m)
		same(t, "merged again", devinfo.Merge(m, i[1], i[2]), m)
		same(t, "merged with what it is", devinfo.Merge(m, m, m), m)
	})
}

// Layers are JSON; "" is a nil layer.
var merges = []struct{ rule, existing, found, declared, want string }{
	{"a missing version becomes the version of the specification",
		``, `{"type":"pci","pci":{"pci-address":"a"}}`, ``,
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"a"}}`},
	{"declared beats found beats existing, key by key",
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"e","vhost-net":"e","rdma-device":"e","pf-pci-address":"e"}}`,
		`{"type":"pci","pci":{"vhost-net":"f","rdma-device":"f","representor-device":"f"}}`,
		`{"type":"pci","pci":{"rdma-device":"d"}}`,
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"e","vhost-net":"f","rdma-device":"d","pf-pci-address":"e","representor-device":"f"}}`},
	{"a found vdpa path replaces a wrong existing one",
		`{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"v","driver":"vhost","path":"pci/x"}}`,
		`{"type":"vdpa","vdpa":{"path":"/dev/vhost-vdpa-0"}}`, ``,
		`{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"v","driver":"vhost","path":"/dev/vhost-vdpa-0"}}`},
	{"vhost-user keeps its existing mode; a declared path replaces the existing one",
		`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"e","path":"e"}}`,
		`{"type":"vhost-user","vhost-user":{"mode":"f","path":"f"}}`,
		`{"vhost-user":{"mode":"d","path":"d"}}`,
		`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"e","path":"d"}}`},
	{"a declared mode beats a found one, and an existing path beats a found one",
		`{"type":"vhost-user","version":"1.1.0","vhost-user":{"path":"e"}}`,
		`{"type":"vhost-user","vhost-user":{"mode":"f","path":"f"}}`, `{"vhost-user":{"mode":"d"}}`,
		`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"d","path":"e"}}`},
	{"memif keeps its existing role and mode; a declared path replaces the existing one",
		`{"type":"memif","version":"1.1.0","memif":{"role":"e","path":"e","mode":"e"}}`,
		`{"type":"memif","memif":{"role":"f","path":"f","mode":"f"}}`,
		`{"type":"memif","memif":{"role":"d","path":"d","mode":"d"}}`,
		`{"type":"memif","version":"1.1.0","memif":{"role":"e","path":"d","mode":"e"}}`},
	{"type is declared, else existing; found maps of another type are ignored",
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"e"}}`,
		`{"type":"vdpa","vdpa":{"path":"f"},"pci":{"rdma-device":"f"}}`, ``,
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"e","rdma-device":"f"}}`},
	{"a declared type replaces the existing one; the map of the old type is kept",
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"e"}}`,
		`{"type":"pci","pci":{"pci-address":"f"}}`, `{"type":"vdpa","vdpa":{"path":"d"}}`,
		`{"type":"vdpa","version":"1.1.0","pci":{"pci-address":"e"},"vdpa":{"path":"d"}}`},
	{"the found type is used if no other layer has one",
		`{"version":"1.1.0"}`, `{"type":"pci","pci":{"pci-address":"f"}}`, `{"pci":{"rdma-device":"d"}}`,
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"f","rdma-device":"d"}}`},
	{"maps are not merged if no layer has a type",
		``, ``, `{"pci":{"rdma-device":"d"}}`, `{"version":"1.1.0"}`},
	{"unknown keys of all layers are kept, declared over found over existing",
		`{"type":"pci","version":"1.1.0","a":"e","b":"e","pci":{"c":"e","d":"e"},"vdpa":{"c":"e"}}`,
		`{"b":"f","f":"f"}`,
		`{"b": 1e400,"g":"d","pci":{"d":[ ]},"vdpa":{"c":"d"}}`,
		`{"type":"pci","version":"1.1.0","pci":{"c":"e","d":[ ]},"vdpa":{"c":"e"},"a":"e","b":1e400,"f":"f","g":"d"}`},
	{"a value of the wrong type is kept unless another layer has a valid one",
		`{"type":"pci","version":1,"memif":7,"pci":{"pci-address":5,"rdma-device":6}}`,
		`{"pci":{"pci-address":"f"}}`, ``,
		`{"type":"pci","version":"1.1.0","memif":7,"pci":{"pci-address":"f","rdma-device":6}}`},
	{"a valid map replaces a malformed one if it belongs to the type",
		`{"type":"pci","version":"1.1.0","pci":5,"vdpa":6}`, `{"pci":{"pci-address":"f"},"vdpa":{"path":"f"}}`, ``,
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"f"},"vdpa":6}`},
	{"malformed values of the found and declared layers are ignored",
		`{"type":"pci","version":"1.1.0"}`, `{"pci":5}`, `{"version":6,"type":7,"pci":{"pci-address":8}}`,
		`{"type":"pci","version":"1.1.0","pci":{}}`},
	{"a malformed mode counts as absent",
		`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":5}}`, `{"vhost-user":{"mode":"f"}}`, ``,
		`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"f"}}`},
}

func TestMerge(t *testing.T) {
	for _, c := range merges {
		got := devinfo.Merge(layer(t, c.existing), layer(t, c.found), layer(t, c.declared))
		if want := parse(t, c.want); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%swant\n%s", c.rule, got.Encode(), want.Encode())
		}
	}
}

func layer(t *testing.T, data string) *devinfo.Info {
	if data == "" {
		return nil
	}
	return parse(t, data)
}

func TestVersionIsAtLeastThatOfNewestKey(t *testing.T) {
	const representor = `{"pci":{"representor-device":"eth3"}}`
	for _, c := range []struct{ existing, found, want string }{
		{`{"type":"pci","version":"1.0.0"}`, representor, "1.1.0"},
		{`{"type":"pci","version":"1.0.0"}`, `{"pci":{"rdma-device":"mlx5_0"}}`, "1.0.0"},
		{`{"type":"pci","version":"1.0.0","pci":{"representor-device":"eth2"}}`, representor, "1.1.0"},
		{`{"type":"pci","version":"1.0.0","pci":{"representor-device":"eth2"}}`, ``, "1.1.0"},
		{`{"type":"pci","version":"1.0.0","vdpa":{"representor-device":"eth2"}}`, ``, "1.1.0"},
		{`{"type":"pci","version":"1.0.0","representor-device":"eth2"}`, ``, "1.0.0"},
		{`{"type":"pci","version":"1.0.0","pci":{"representor-device":5}}`, representor, "1.1.0"},
		{`{"type":"pci","version":"1.0.0","vdpa":{"representor-device":"eth2"}}`, representor, "1.1.0"},
		{`{"type":"vdpa","version":"1.0.0"}`, `{"vdpa":{"representor-device":"eth3"}}`, "1.1.0"},
		{`{"type":"vdpa","version":"1.0.0"}`, representor, "1.0.0"},
		{`{"type":"pci","version":"1.0.9"}`, representor, "1.1.0"},
		{`{"type":"pci","version":"1.10.0"}`, representor, "1.10.0"},
		{`{"type":"pci","version":"1.1.1"}`, representor, "1.1.1"},
		{`{"type":"pci","version":"1.0"}`, ``, "1.1.0"},
		{`{"type":"pci","version":"a.0.0"}`, ``, "1.1.0"},
		{`{"type":"pci","version":"1.a.0"}`, ``, "1.1.0"},
		{`{"type":"pci","version":"1.01.0"}`, ``, "1.1.0"},
		{`{"type":"pci","version":5}`, ``, "1.1.0"},
		{`{"type":"pci"}`, `{"version":"1.0.0"}`, "1.1.0"},
	} {
		got := devinfo.Merge(layer(t, c.existing), layer(t, c.found), nil)
		if got.Version != c.want {
			t.Errorf("%s + %s: version %q, want %q", c.existing, c.found, got.Version, c.want)
		}
	}
}

func TestMergeSharesNoMemoryWithItsArguments(t *testing.T) {
	layers := []*devinfo.Info{parse(t, `{"type":"pci","a":[1],"pci":{"a":[1]}}`), parse(t, `{"b":[1],"pci":{"b":[1]}}`), parse(t, `{"c":[1],"pci":{"c":[1]}}`)}
	got := devinfo.Merge(layers[0], layers[1], layers[2])
	for _, extra := range []raws{got.Extra, got.PCI.Extra} {
		for key := range extra {
			extra[key][1] = '2'
		}
	}
	for n, key := range []string{"a", "b", "c"} {
		if l := layers[n]; string(l.Extra[key]) != "[1]" || string(l.PCI.Extra[key]) != "[1]" {
			t.Errorf("changing the result changed argument %d:\n%s", n, l.Encode())
		}
	}
}
