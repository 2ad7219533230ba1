package main

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/dra/state"
)

// Pods and claims have other names then, also in what cni-dra-driver says of its offer.
func TestAScrubbedCaptureShowsWhatIsOffered(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/golden/offers.txtar")
	must(t, err)
	host, _ := changedHost(t, archive.Files)
	public := filepath.Join(t.TempDir(), "public.txtar")
	if o := ctl("--host", host, "capture", "--scrub", "-o", public); o.exit != 0 {
		t.Fatal(o.stderr)
	}
	o := ctl("--host", public, "topology")
	if o.exit != 0 || strings.Contains(o.stdout, "shop") || strings.Count(o.stdout, ", claim ") != 3 || strings.Count(o.stdout, "held by ") != 5 || !strings.Contains(o.stdout, "has it from device plugin") {
		t.Errorf("%+v", o)
	}
}

// The kubelet may have its directory elsewhere, and the DaemonSet says where.
func TestTheStateOfTheDriverIsWhereTheEnvironmentSays(t *testing.T) {
	n := newNode(t)
	t.Setenv(state.DirVariable, n.claim(`{"schema": 1, "namespace": "shop", "name": "sf", "uid": "u1", "pod": {"namespace": "shop", "name": "web-0", "uid": "p"},
		"attachments": [{"network": "blue", "ifName": "net1", "phase": "Prepared", "list": {}}]}`))
	if got := n.ctl("list"); !strings.Contains(got, "shop/web-0") {
		t.Errorf("got %s", got)
	}
}
