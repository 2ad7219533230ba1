package devinfo_test

import (
	"os"
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
	equal(t, what, i, j)
	data := i.Encode()
	if len(data) > 1<<20 {
		return
	}
	equal(t, what+", read back", parse(t, string(data)), j)
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
	for _, c := range merges(f) {
		f.Add(c[1], c[2], c[3])
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
		equal(t, "the layers afterwards", i, before)
		if m == nil {
			equal(t, "the lost layers", i, [3]*devinfo.Info{})
			return
		}
		same(t, "merged", m, m)
		same(t, "merged again", devinfo.Merge(m, i[1], i[2]), m)
		same(t, "merged with what it is", devinfo.Merge(m, m, m), m)
	})
}

// merges returns the sections of testdata/merges.txt: a rule, the existing, found and declared layers, and the result.
func merges(t testing.TB) (sections [][]string) {
	data, err := os.ReadFile("testdata/merges.txt")
	must(t, err)
	for _, text := range strings.Split(string(data), "\n\n")[1:] {
		sections = append(sections, strings.Split(strings.TrimSpace(text), "\n"))
	}
	return sections
}

func TestMerge(t *testing.T) {
	for _, c := range merges(t) {
		equal(t, c[0], devinfo.Merge(layer(t, c[1]), layer(t, c[2]), layer(t, c[3])), parse(t, c[4]))
	}
}

func layer(t *testing.T, data string) *devinfo.Info {
	if data == "-" {
		return nil
	}
	return parse(t, data)
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
		equal(t, key+" after a change of the result", string(layers[n].Extra[key])+string(layers[n].PCI.Extra[key]), "[1][1]")
	}
}
