package main

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/journal"
)

// Who is sent a capture sees what there is to be seen on the node.
func TestCapturedNodeListsAndChecksLikeTheNode(t *testing.T) {
	n := newNodeWith(t, "/sys")
	n.put(journal.Entry{Key: container("alive"), Netns: aliveNetns, File: "alive", Complete: true, Device: journal.Device{Type: "memif", ID: "/run/m"}})
	n.put(journal.Entry{Key: container("gone"), Netns: n.noNetns(), File: "gone", Complete: true, Delegates: delegates("first")})
	n.put(journal.Entry{Key: container("older"), Netns: aliveNetns, BootID: "older", Complete: true})
	n.put(journal.Entry{Key: container("lost"), Netns: aliveNetns, Complete: true, Device: journal.Device{Type: "pci", ID: "0000:0f:00.1"}})
	captured := filepath.Join(t.TempDir(), "captured.txtar")
	if o := ctl("--node-config", n.file, "capture", "-o", captured); o.exit != exitOK {
		t.Fatal(o.seen())
	}
	for _, args := range [][]string{{"list"}, {"list", "-o", "json"}, {"check", "gone"}, {"check", "older"}, {"gc", "--dry-run"}} {
		here, there := ctl(append([]string{"--node-config", n.file}, args...)...), ctl(append([]string{"--host", captured}, args...)...)
		if diff := cmp.Diff(here.seen(), there.seen()); diff != "" {
			t.Errorf("%v (-node +capture):\n%s", args, diff)
		}
	}
}
