package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/journal"
)

// Who is sent a capture sees what there is to be seen on the node.
func TestCapturedNodeListsAndChecksLikeTheNode(t *testing.T) {
	n := newNodeWith(t, "/sys")
	n.put(journal.Entry{Key: container("alive"), Netns: aliveNetns, File: "alive", Complete: true, Device: journal.Identity{Type: "memif", ID: "/run/m"}})
	n.put(journal.Entry{Key: container("gone"), Netns: n.noNetns(), File: "gone", Complete: true, Delegates: delegates("first")})
	n.put(journal.Entry{Key: container("older"), Netns: aliveNetns, BootID: "older", Complete: true})
	n.put(journal.Entry{Key: container("lost"), Netns: aliveNetns, Complete: true, Device: journal.Identity{Type: "pci", ID: "0000:0f:00.1"}})
	claims := n.claim(`{"schema": 1, "namespace": "shop", "name": "net", "uid": "u1", "pod": {"namespace": "shop", "name": "web-0", "uid": "p"},
		"attachments": [{"network": "claimed", "ifName": "net1", "phase": "Added", "sandbox": "s1", "netns": "` + aliveNetns + `", "list": {"password": "secret"}}]}`)
	captured, public := filepath.Join(t.TempDir(), "captured.txtar"), filepath.Join(t.TempDir(), "public.txtar")
	if o := ctl("--node-config", n.file, "--dra-state-dir", claims, "capture", "-o", captured); o.exit != 0 {
		t.Fatal(o.seen())
	}
	if o := ctl("--host", captured, "capture", "--scrub", "-o", public); o.exit != 0 {
		t.Fatal(o.seen())
	}
	text, err := os.ReadFile(public)
	n.must(err)
	for _, secret := range []string{"shop", "web-0", "secret"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the scrubbed capture has %q", secret)
		}
	}
	for _, args := range [][]string{{"list"}, {"list", "-o", "json"}, {"check", "gone"}, {"check", "shop/web-0"}, {"check", "older"}, {"gc", "--dry-run"}} {
		here, there := ctl(append([]string{"--node-config", n.file, "--dra-state-dir", claims}, args...)...), ctl(append([]string{"--host", captured}, args...)...)
		if diff := cmp.Diff(here.seen(), there.seen()); diff != "" {
			t.Errorf("%v (-node +capture):\n%s", args, diff)
		}
	}
}
