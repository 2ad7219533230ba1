package discovery_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"syscall"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func TestEveryDeviceOfEveryHostIsDescribed(t *testing.T) {
	const name = "testdata/devices.txtar"
	want, err := txtar.ParseFile(name)
	difftest.Must(t, err)
	got := &txtar.Archive{Comment: want.Comment}
	for _, host := range capturetest.Described(t) {
		text := ""
		for _, bus := range []string{"pci", "auxiliary", "vdpa"} {
			devices, err := fs.Glob(load(t, host).Sys(), "bus/"+bus+"/devices/*")
			difftest.Must(t, err)
			for _, d := range devices {
				text += line(t, on(t, load(t, host)), path.Base(d)) + "\n"
			}
		}
		got.Files = append(got.Files, txtar.File{Name: host, Data: []byte(text)})
	}
	goldentest.File(t, name, string(txtar.Format(got)))
}

// The report of devinfo-try is a test as it is: what the kernel's files said on the machine must be found in its capture.
func TestReportsAreDescribedAsOnTheirMachine(t *testing.T) {
	compared := 0
	for _, host := range capturetest.Names(t) {
		file := load(t, host)
		text := file.File(capturetest.Report)
		if text == nil {
			continue
		}
		var trial struct {
			Functions []struct {
				Function string
				Found    map[string]json.RawMessage // since devinfo-try tells it
			}
		}
		difftest.Must(t, json.Unmarshal(text, &trial))
		for _, f := range trial.Functions {
			device, err := on(t, file).Find(byID(f.Function))
			difftest.Must(t, err)
			difftest.Contains(t, fmt.Sprint(flat(t, device.Info)), f.Function)
			compared++
			for id, want := range f.Found {
				info, err := devinfo.Parse(want)
				difftest.Must(t, err)
				device, err := on(t, file).Find(byID(id))
				difftest.Must(t, err)
				difftest.Equal(t, flat(t, device.Info), flat(t, info))
			}
		}
	}
	if compared == 0 {
		t.Error("no report was compared")
	}
}

func line(t *testing.T, f *discovery.Finder, name string) string {
	t.Helper()
	device, err := f.Find(byID(name))
	if err != nil || len(device.Warnings) > 0 || device.InNetns || device.Shared {
		t.Errorf("%s: %v, %v", name, show(t, device, err), err)
		return ""
	}
	text := fmt.Sprint(name, ": ", flat(t, device.Info))
	if device.Problem != nil {
		text += " not describable"
	}
	return text
}

type work struct {
	calls   int
	entries int // directory entries read
}

// A query is a search for one device among n VFs.
type query struct {
	mode   func(string) (string, error) // devlink's answer
	target func(n int) discovery.Target
}

func (q query) work(t *testing.T, n int) work {
	t.Helper()
	host := capturetest.ManyVFs(n)
	links, err := linkhost.New(host)
	difftest.Must(t, err)
	var w work
	sys := capturetest.Tree{
		FS:         host.Sys(),
		BeforeCall: func(string) error { w.calls++; return nil },
		Listed:     func(part []fs.DirEntry) []fs.DirEntry { w.entries += len(part); return part },
	}
	f := &discovery.Finder{
		Sys: sysfs.New(sys), Interfaces: hostNetwork{links},
		Eswitches: link.Eswitch{Sys: sys, Mode: q.mode, Ports: func(string) ([]link.PortRecord, error) {
			t.Error("the devlink ports of a PF in legacy mode were asked for")
			return nil, syscall.ENODEV
		}},
	}
	device, err := f.Find(q.target(n))
	if err != nil || device.Info == nil || device.Info.PCI.RDMADevice == "" || device.Problem != nil || len(device.Warnings) > 0 {
		t.Fatal(show(t, device, err))
	}
	return w
}

func TestWorkOfFindDoesNotGrowWithVFs(t *testing.T) {
	legacy := func(string) (string, error) { return "legacy", nil }
	silent := func(string) (string, error) { return "", syscall.EOPNOTSUPP }
	unread := func(string) (string, error) { t.Error("the eswitch mode was read for a PF"); return "legacy", nil }
	last := func(n int) discovery.Target { return byID(capturetest.VF(n - 1)) }
	pf := func(int) discovery.Target { return byID("0000:3b:00.0") }
	all := func(n int) discovery.Target {
		target, vf := inPod(fmt.Sprint("ens1f0v", n-1)), capturetest.VF(n-1)
		target.DeviceIDs, target.PCIID = ids("deviceID", vf), vf
		target.Existing = described(t, "pci:"+vf)
		return target
	}
	for name, q := range map[string]query{
		"the last VF":                      {legacy, last},
		"the last VF, devlink has no mode": {silent, last},
		"the last VF, by four sources":     {legacy, all},
		"the PF":                           {unread, pf},
	} {
		few, many := q.work(t, 4), q.work(t, 1024)
		difftest.Same(t, name+" with 4 and with 1024 VFs", fmt.Sprint(few), fmt.Sprint(many))
		if few.calls == 0 || few.calls > 60 {
			t.Errorf("%s: %d calls", name, few.calls)
		}
		t.Logf("%s: %+v", name, many)
	}
}
