package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo/store"
)

// FuzzName shows that what is no name of a file in the directory never reaches the file
// system, and that what is one names that file and no other.
func FuzzName(f *testing.F) {
	for _, name := range []string{
		"net-c0ffee_net1", "", ".", "..", "../victim", "a/b", "a\x00b", ".hidden", ".net1.devinfo", "a\nb", "a\x1b[2J", "\xff", "victim", "…",
		strings.Repeat("a", 246), strings.Repeat("a", 247), "cni/a", "//", "a/", "a/.", "a/..",
	} {
		f.Add(name)
	}
	top := f.TempDir()
	f.Fuzz(func(t *testing.T, name string) {
		parent, err := os.MkdirTemp(top, "")
		must(t, err)
		defer os.RemoveAll(parent)
		d := store.Open(filepath.Join(parent, "cni"))
		must(t, os.WriteFile(filepath.Join(parent, "victim"), []byte("v"), 0o600))
		must(t, os.Mkdir(d.Path(""), 0o755))
		fromPath, pathErr := d.Name(d.Path("") + "/" + name)
		err = d.Write(name, []byte("w"))
		if bad := new(store.NameError); err != nil && !errors.As(err, &bad) {
			t.Errorf("%q: %v", name, err)
		}
		plain := name != "" && name[0] != '.' && len(name) <= 246 && !strings.ContainsAny(name, "/\x00")
		if plain != (err == nil) || plain && pathErr == nil && fromPath != name {
			t.Errorf("%q: Write says %v, and Name %q", name, err, fromPath)
		}
		if _, read := d.Info(name); !plain && !errors.As(read, new(*store.NameError)) {
			t.Errorf("%q: Info says %v", name, read)
		}
		var want []string
		if err == nil {
			want = append(want, name)
			if data, err := d.Read(name); err != nil || string(data) != "w" {
				t.Errorf("%q: read %q, %v", name, data, err)
			}
		}
		if got := entries(t, d.Path("")); strings.Join(got, "/") != strings.Join(want, "/") {
			t.Errorf("%q (%v): there are %q", name, err, got)
		}
		if removed := d.Remove(name); (removed == nil) != (err == nil) {
			t.Errorf("%q: Write says %v, and Remove %v", name, err, removed)
		}
		if got := entries(t, d.Path("")); len(got) > 0 {
			t.Errorf("%q: Remove leaves %q", name, got)
		}
		if got := entries(t, parent); len(got) != 2 {
			t.Errorf("%q: beside the directory there are %q", name, got)
		}
		if data, err := os.ReadFile(filepath.Join(parent, "victim")); err != nil || string(data) != "v" {
			t.Errorf("%q: the file beside the directory holds %q, %v", name, data, err)
		}
	})
}
