package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// FuzzKey checks that two attachments never share an entry, and that no key leads outside the directory of the
// entries.
func FuzzKey(f *testing.F) {
	f.Add("net", "c0ffee", "net1")
	f.Add("net@a", "b", "c")
	f.Add("net", "a@b", "c")
	f.Add("net", "a", "b@c")
	f.Add("net", "..", "../../../x")
	f.Add(".net", "a", "b")
	f.Add("n", "a", "b\x00c")
	f.Add("n", "a", "b\xff")
	f.Add("n", strings.Repeat("a", 200), strings.Repeat("b", 60))
	for _, k := range []Key{{}, {"n", "c", ""}, {"n", "", "i"}, {"", "c", "i"}, {"../n", "c", "i"}, {"n", "-c", "i"}, {"n\n", "c", "i"}} {
		f.Add(k.Network, k.ContainerID, k.IfName)
	}
	top := f.TempDir()
	f.Fuzz(func(t *testing.T, network, containerID, ifName string) {
		k := Key{network, containerID, ifName}
		if name, err := k.entry(); err == nil {
			if got, ok := parseKey(name); !ok || got != k {
				t.Errorf("%q is read from %q as %q", k, name, got)
			}
		}
		dir, err := os.MkdirTemp(top, "")
		difftest.Must(t, err)
		defer os.RemoveAll(dir)
		j := Open(filepath.Join(dir, "state"), "boot")
		e := &Entry{Key: k}
		err = j.Put(e, nil)
		e.Unlock()
		found := difftest.Files(t, dir)
		_, get := j.Get(k)
		locked, lock := j.Lock(t.Context(), k, 0)
		locked.Unlock()
		for _, also := range []error{get, lock, k.Check(), j.FillFromLeases(&Entry{Key: k})} {
			if (also == nil) != (err == nil) {
				t.Errorf("%q: Put returns %v, another method %v", k, err, also)
			}
		}
		if err != nil {
			difftest.Says(t, j.Forget(e))
			difftest.Same(t, "left by a Put that fails", found, []string(nil))
			return
		}
		if len(found) != 1 || filepath.Dir(found[0]) != filepath.Join(dir, "state/attachments") {
			t.Fatalf("%q makes %q", k, found)
		}
		got, err := j.Get(k)
		difftest.Must(t, err, j.Forget(e))
		difftest.Equal(t, got.Key, k)
		difftest.Same(t, "left", difftest.Files(t, dir), []string(nil))
	})
}
