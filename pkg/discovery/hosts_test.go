package discovery_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/discovery"
)

func TestEveryDeviceOfEveryHostIsDescribed(t *testing.T) {
	const name = "testdata/devices.txtar"
	files, err := filepath.Glob("../../testdata/hosts/*.txtar")
	want, wantErr := txtar.ParseFile(name)
	if err != nil || wantErr != nil || len(files) < 14 {
		t.Fatalf("%d hosts, %v, %v", len(files), err, wantErr)
	}
	got := &txtar.Archive{Comment: want.Comment}
	for _, file := range files {
		host, text := strings.TrimSuffix(filepath.Base(file), ".txtar"), ""
		for _, bus := range []string{"pci", "auxiliary", "vdpa"} {
			devices, err := fs.Glob(load(t, host).Sys(), "bus/"+bus+"/devices/*")
			must(t, err)
			for _, d := range devices {
				text += line(t, on(t, load(t, host)), path.Base(d)) + "\n"
			}
		}
		got.Files = append(got.Files, txtar.File{Name: host, Data: []byte(text)})
	}
	if *update {
		if err := os.WriteFile(name, txtar.Format(got), 0o644); err != nil {
			t.Error(err)
		}
	} else if diff := cmp.Diff(string(txtar.Format(want)), string(txtar.Format(got))); diff != "" {
		t.Errorf("-update writes %s anew, if the difference is right:\n%s", name, diff)
	}
}

// line is the description of a device.
func line(t *testing.T, f *discovery.Finder, name string) string {
	t.Helper()
	device, err := f.Find(byID(name))
	if err != nil || len(device.Warnings) > 0 || device.InNetns || device.Shared {
		t.Errorf("%s: %v, %v", name, show(t, device, err), err)
		return ""
	}
	words := []string{name + ":"}
	if device.Info != nil {
		words = append(words, string(device.Info.Type))
	}
	values := flat(t, device.Info)
	for _, f := range [][2]string{
		{"vdpa.parent-device", "parent"}, {"vdpa.driver", "driver"}, {"vdpa.path", "path"}, {"vdpa.pci-address", "addr"},
		{"vdpa.pf-pci-address", "pf"}, {"vdpa.representor-device", "rep"},
		{"pci.pf-pci-address", "pf"}, {"pci.rdma-device", "rdma"}, {"pci.representor-device", "rep"},
	} {
		if v := values[f[0]]; v != "" {
			words = append(words, f[1]+"="+v)
		}
	}
	if a := values["pci.pci-address"]; a != "" && a != name {
		t.Errorf("%s is described as %s", name, a)
	}
	if device.Problem != nil {
		words = append(words, "not describable")
	}
	return strings.Join(words, " ")
}
