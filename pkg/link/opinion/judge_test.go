package opinion_test

import (
	"io/fs"
	"path"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/linkhost"
	"devinfo-cni.io/pkg/link/opinion/opiniontest"
)

// Package link and sriovnet find the same representor for every function that a PCI
// device of a captured host has or might have, with devlink and without.
func TestSriovnetAgreesOnCapturedHosts(t *testing.T) {
	names, err := filepath.Glob("../../../testdata/hosts/*.txtar")
	if err != nil || len(names) < 12 {
		t.Fatalf("%d hosts, %v", len(names), err)
	}
	found := 0
	for _, name := range names {
		file, err := hosttxt.Load(name)
		must(t, err)
		host, err := linkhost.New(file)
		must(t, err)
		devices, err := fs.Glob(file.Sys(), "bus/pci/devices/*")
		must(t, err)
		without := host.Eswitch
		without.Ports = func(string) ([]*netlink.DevlinkPort, error) { return nil, syscall.ENODEV }
		for _, device := range devices {
			found += agreed(t, path.Base(name), host.Eswitch, path.Base(device))
			found += agreed(t, path.Base(name)+" without devlink", without, path.Base(device))
		}
	}
	if found < 20 {
		t.Errorf("only %d representors", found)
	}
}

// agreed counts the representors on a PF.
func agreed(t *testing.T, host string, e link.Eswitch, pf string) (found int) {
	t.Helper()
	for _, flavour := range []link.Flavour{link.VF, link.SF} {
		for number := range 100 {
			ours, ok, err := e.Representor(pf, flavour, number)
			theirs, theirErr := opiniontest.Sriovnet(e, pf, flavour, number)
			if ours != theirs {
				t.Errorf("%s: flavour %d, number %d of %s: %q, %v; sriovnet: %q, %v", host, flavour, number, pf, ours, err, theirs, theirErr)
			}
			if ok {
				found++
			}
		}
	}
	return found
}
