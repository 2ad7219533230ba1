package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/journal"
)

// What is well is said, and no more than what is wrong is wrong.
func TestDoctorOfANode(t *testing.T) {
	n := newNode(t)
	n.put(journal.Entry{Key: container("c0ffee"), Netns: aliveNetns, Complete: true})
	n.put(journal.Entry{Key: container("decade"), Netns: n.noNetns(), Complete: true, Args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"})
	n.must(os.MkdirAll(filepath.Join(n.StateDir, "files"), 0o700))
	n.must(os.Symlink("../attachments/none@none@net1", filepath.Join(n.StateDir, "files", "stale")))
	n.plugin("devinfo", `echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'`)
	got := n.ctl("doctor", "--cni-path", n.bin, "--cni-conf-dir", n.bin, "--nri-socket", n.file, "--pod-resources", n.noNetns(), "--sriov-locks", n.noNetns())
	for _, want := range []string{
		"error    attachments  pod shop/web-0, net-a/decade/net1: netns gone: network namespace /bin/no-such is gone. Remedy: ",
		"warning  files        /state/files/stale: claims a file for an attachment that is not on record. Remedy: ",
		"ok       plugin       ", "ok       settings     ", "info     networks     ", "warning  directories  /cdi: ", "ok       runtime      ",
		"unknown  sight        devices of pods: /bin/no-such: no such file or directory. Remedy: ", "exit 1\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "c0ffee") {
		t.Errorf("an attachment that is as it should be is named:\n%s", got)
	}
}

// Node settings that are wrong are an answer, not an end.
func TestDoctorLooksOnWithoutNodeSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.json")
	if err := os.WriteFile(file, []byte(`{"logLevel": "loud"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	o := ctl("--node-config", file, "doctor")
	if o.exit != exitFound || !strings.Contains(o.stdout, "error    settings     node settings "+file+`: logLevel: "loud"`) {
		t.Errorf("%+v", o)
	}
}
