package discovery_test

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/linkhost"
	"devinfo-cni.io/pkg/sysfs"
)

// work is what was asked of a file system.
type work struct {
	calls   int
	entries int // of directories, as far as they were read
}

// A query is one way to look for one device among n VFs.
type query struct {
	mode   func(string) (string, error) // devlink's answer
	target func(n int) discovery.Target
}

func (q query) work(t *testing.T, n int) work {
	t.Helper()
	host := hosttxttest.ManyVFs(n)
	links, err := linkhost.New(host)
	must(t, err)
	var w work
	sys := hosttxttest.Tree{
		FS:    host.Sys(),
		Asked: func(string) error { w.calls++; return nil },
		Lists: func(part []fs.DirEntry) []fs.DirEntry { w.entries += len(part); return part },
	}
	f := &discovery.Finder{
		Sys: sysfs.New(sys), Interfaces: hostNetwork{links},
		Switches: link.Eswitch{Sys: sys, Mode: q.mode, Ports: func(string) ([]*netlink.DevlinkPort, error) {
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

func TestLookingForADeviceTakesTheSameWorkHoweverManyVFsThereAre(t *testing.T) {
	legacy := func(string) (string, error) { return "legacy", nil }
	silent := func(string) (string, error) { return "", syscall.EOPNOTSUPP }
	last := func(n int) discovery.Target { return byID(hosttxttest.VF(n - 1)) }
	pf := func(int) discovery.Target { return byID("0000:3b:00.0") }
	all := func(n int) discovery.Target {
		target, vf := inPod(fmt.Sprint("ens1f0v", n-1)), hosttxttest.VF(n-1)
		target.DeviceIDs, target.PCIID = ids("deviceID", vf), vf
		target.Existing = described(t, "pci:"+vf)
		return target
	}
	for name, q := range map[string]query{
		"the last VF":                      {legacy, last},
		"the last VF, devlink has no mode": {silent, last},
		"the last VF, by four sources":     {legacy, all},
		"the PF":                           {legacy, pf},
	} {
		few, many := q.work(t, 4), q.work(t, 1024)
		if few != many {
			t.Errorf("%s: 4 VFs take %+v, 1024 take %+v", name, few, many)
		}
		if few.calls == 0 || few.calls > 60 {
			t.Errorf("%s: %d calls", name, few.calls)
		}
		t.Logf("%s: %+v", name, many)
	}
}
