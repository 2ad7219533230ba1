package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// The test uses files as namespaces, because device and inode identify both.
func TestGateAdmitsOnlyContainersOfItsPod(t *testing.T) {
	dir := t.TempDir()
	other, pod := filepath.Join(dir, "netns/other"), filepath.Join(dir, "netns/pod")
	difftest.Write(t, other, "", 0o644)
	difftest.Write(t, pod, "", 0o644)
	difftest.Must(t, os.MkdirAll(filepath.Join(dir, "proc/7/ns"), 0o755), os.Link(pod, filepath.Join(dir, "proc/7/ns/net")))
	const state = `{"ociVersion":"1.0.2","id":"c1","annotations":{"pid":"8"},"pid":7,"status":"creating"}`
	annotated := func(annotations string) string { return `{"pid":7,"annotations":{` + annotations + `}}` }
	const containerd, crio = `"io.kubernetes.cri.sandbox-uid":`, `"io.kubernetes.pod.uid":`
	of := []string{"pod/6e0c", "claim ns/a"}
	for name, test := range map[string]struct {
		args  []string
		state string
		says  string // "" = the container may start
	}{
		"its own":                      {[]string{pod, "claim ns/a"}, state, ""},
		"another's":                    {[]string{other, "claim ns/a"}, state, "claim ns/a, in a different sandbox"},
		"one that went":                {[]string{filepath.Join(dir, "netns/gone"), "claim ns/a"}, state, "claim ns/a, in a sandbox that has ended"},
		"no process":                   {[]string{pod, "claim ns/a"}, `{"pid":8}`, "claim ns/a: cannot read the container's network namespace"},
		"no pid":                       {[]string{pod, "claim ns/a"}, `{}`, "cannot read the container's network namespace"},
		"no state":                     {[]string{pod, "claim ns/a"}, "", "cannot read the runtime's state"},
		"its pod's, by containerd":     {of, annotated(containerd + `"6e0c"`), ""},
		"its pod's, by CRI-O":          {of, annotated(crio + `"6e0c"`), ""},
		"another pod's, by containerd": {of, annotated(containerd + `"6e0d"`), "claim ns/a, not by the pod of this container"},
		"another pod's, by CRI-O":      {of, annotated(crio + `"6e0d"`), "claim ns/a, not by the pod of this container"},
		"a pod that adds CRI-O's":      {of, annotated(containerd + `"6e0d",` + crio + `"6e0c"`), "claim ns/a, not by the pod of this container"},
		"a pod that adds containerd's": {of, annotated(containerd + `"6e0c",` + crio + `"6e0d"`), "claim ns/a, not by the pod of this container"},
		"no pod":                       {of, state, "claim ns/a: the runtime does not tell the pod"},
		"an empty pod":                 {of, annotated(containerd + `""`), "claim ns/a, not by the pod of this container"},
		"no arguments":                 {nil, state, "restart cni-dra-driver"},
	} {
		err := check(test.args, strings.NewReader(test.state), filepath.Join(dir, "proc"))
		if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A runtime runs the program with two arguments. Everything else is for people.
func TestHelpAndVersionAreForPeople(t *testing.T) {
	for _, flag := range []string{"--help", "-h", "--version"} {
		if text := forPeople([]string{flag}); !strings.HasPrefix(text, "cni-dra-gate ") {
			t.Errorf("%s: %q", flag, text)
		}
	}
	for _, args := range [][]string{nil, {"--help", "claim ns/a"}, {"/run/netns/a", "--version"}, {"x"}} {
		if text := forPeople(args); text != "" {
			t.Errorf("%q: %q", args, text)
		}
	}
}
