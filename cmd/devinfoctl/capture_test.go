package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/test/difftest"
)

func TestCaptureOfCaptureKeepsContent(t *testing.T) {
	for _, scrub := range [][]string{nil, {"--scrub"}} {
		again := filepath.Join(t.TempDir(), "again.txtar")
		args := append([]string{"--capture", nodeHost, "capture", "-o", again}, scrub...)
		if o := ctl(args...); o != (outcome{}) {
			t.Fatalf("%q: %+v", args, o)
		}
		_, err := capturefile.Load(again)
		difftest.Must(t, err)
		stat, err := os.Stat(again)
		if err != nil || stat.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v: whom the file is for its owner decides", stat.Mode(), err)
		}
		commands := []string{"topology", "topology -o json", "list -o json", "inspect 0000:03:00.2"}
		if scrub != nil { // scrubbing renames pods
			commands = []string{"gc --dry-run -o json", "inspect 0000:03:00.2", "check sriov-net/9faf -o json"}
		}
		for _, command := range commands {
			before := ctl(append([]string{"--capture", nodeHost}, strings.Fields(command)...)...)
			after := ctl(append([]string{"--capture", again}, strings.Fields(command)...)...)
			before.stdout, after.stdout = podKey.ReplaceAllString(before.stdout, ""), podKey.ReplaceAllString(after.stdout, "")
			if before != after || before.exit > clierr.Found {
				t.Errorf("%q: %s shows\n%+v\nand of the capture\n%+v", scrub, command, before, after)
			}
		}
	}
}

var podKey = regexp.MustCompile(`"(namespace|pod)": "[^"]*",`)

func TestCaptureNamesTheMachine(t *testing.T) {
	for args, first := range map[string]string{
		"":                         "i40e: from documentation: Intel X710 with 4 VFs, i40e and iavf (as of Linux 6.12)\n",
		"--name Rack_7 --note new": "rack-7: new\n",
		"--scrub":                  "host: from documentation: Intel X710 with 4 VFs, i40e and iavf (as of Linux 6.12)\n",
		"--scrub --name public":    "public: from documentation: Intel X710 with 4 VFs, i40e and iavf (as of Linux 6.12)\n",
	} {
		o := ctl(append([]string{"--capture", hosts + "i40e.txtar", "capture", "-o", "-"}, strings.Fields(args)...)...)
		if got, _, _ := strings.Cut(o.stdout, "-- "); got != first || o.exit != 0 {
			t.Errorf("%q: %q, %s; want %q", args, got, o.stderr, first)
		}
	}
}

// An agent's pod mounts the directory of the CNI plugins, so capture -o could overwrite one.
func TestCaptureOverwritesOnlyCaptures(t *testing.T) {
	dir := t.TempDir()
	plugin, empty, captured := filepath.Join(dir, "multus"), filepath.Join(dir, "empty"), filepath.Join(dir, "old.txtar")
	difftest.Write(t, plugin, "#!/bin/sh\n", 0o755)
	difftest.Write(t, empty, "", 0o600)
	difftest.Write(t, captured, difftest.Read(t, hosts+"i40e.txtar"), 0o600)
	for to, code := range map[string]int{
		plugin: clierr.Usage, dir: clierr.Usage, dir + "/none/file": clierr.Blind, empty: 0, captured: 0, filepath.Join(dir, "new"): 0,
	} {
		if o := ctl("--capture", nodeHost, "capture", "-o", to); o.exit != code || code != 0 && strings.Count(o.stderr, "\n") != 2 {
			t.Errorf("%s: %+v", to, o)
		} else if code == 0 && !strings.Contains(difftest.Read(t, to), "sriov-net") {
			t.Errorf("%s is not the capture", to)
		}
	}
	difftest.Same(t, "the plugin", difftest.Read(t, plugin), "#!/bin/sh\n")
	difftest.Holds(t, dir, "empty", "multus", "new", "old.txtar")
}

// The reader of a capture sees the same as the administrator of the node.
func TestCapturedNodeListsAndChecksLikeTheNode(t *testing.T) {
	n := newNodeIn(t, t.TempDir(), "/sys")
	n.put(journal.Entry{Key: container("alive"), Netns: aliveNetns, File: "alive", Complete: true, Device: journal.Identity{Type: "memif", ID: "/run/m"}})
	n.put(journal.Entry{Key: container("gone"), Netns: n.noNetns(), File: "gone", Complete: true, Delegates: delegates("first")})
	n.put(journal.Entry{Key: container("older"), Netns: aliveNetns, BootID: "older", Complete: true})
	n.put(journal.Entry{Key: container("lost"), Netns: aliveNetns, Complete: true, Device: journal.Identity{Type: "pci", ID: "0000:0f:00.1"}})
	newer := journal.Key{Network: "net-a", ContainerID: "newer", IfName: "net1"}
	n.must(os.WriteFile(newer.Path(n.StateDir), []byte(`{"format": 99, "leases": "of a new kind", "args": "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=new-0"}`), 0o600))
	claims := n.claim(`{"schema": 1, "namespace": "shop", "name": "net", "uid": "u1", "pod": {"namespace": "shop", "name": "web-0", "uid": "p"},
		"attachments": [{"network": "claimed", "ifName": "net1", "phase": "Added", "sandbox": "s1", "netns": "` + aliveNetns + `", "list": {"password": "secret"}}]}`)
	captured, public := filepath.Join(t.TempDir(), "captured.txtar"), filepath.Join(t.TempDir(), "public.txtar")
	if o := ctl("--node-config", n.file, "--dra-state-dir", claims, "capture", "-o", captured); o.exit != clierr.Blind { // it has no kubelet
		t.Fatal(o.seen())
	}
	if o := ctl("--capture", captured, "capture", "--scrub", "-o", public); o.exit != 0 {
		t.Fatal(o.seen())
	}
	difftest.Lacks(t, difftest.Read(t, public), "shop", "web-0", "secret")
	for _, command := range []string{"list", "list -o json", "check gone", "check shop/web-0", "check older", "gc --dry-run", "topology -o json"} {
		args := strings.Fields(command)
		here, there := ctl(append([]string{"--node-config", n.file, "--dra-state-dir", claims}, args...)...), ctl(append([]string{"--capture", captured}, args...)...)
		difftest.Same(t, command+" of the capture", there.seen(), here.seen())
	}
}
