package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/ctl/remedy"
	"devinfo-cni.io/pkg/hosttxt"
)

func TestCaptureOfACaptureShowsTheSame(t *testing.T) {
	for _, scrub := range [][]string{nil, {"--scrub"}} {
		again := filepath.Join(t.TempDir(), "again.txtar")
		args := append([]string{"--host", nodeHost, "capture", "-o", again}, scrub...)
		if o := ctl(args...); o != (outcome{}) {
			t.Fatalf("%q: %+v", args, o)
		}
		if _, err := hosttxt.Load(again); err != nil {
			t.Fatal(err)
		}
		stat, err := os.Stat(again)
		if err != nil || stat.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v: whom the file is for its owner decides", stat.Mode(), err)
		}
		commands := []string{"topology", "topology -o json", "list -o wide", "inspect 0000:03:00.2"}
		if scrub != nil { // which renames pods
			commands = []string{"gc --dry-run -o json", "inspect 0000:03:00.2", "check sriov-net/9faf -o json"}
		}
		for _, command := range commands {
			before := ctl(append([]string{"--host", nodeHost}, strings.Fields(command)...)...)
			after := ctl(append([]string{"--host", again}, strings.Fields(command)...)...)
			before.stdout, after.stdout = podKey.ReplaceAllString(before.stdout, ""), podKey.ReplaceAllString(after.stdout, "")
			if before != after || before.exit > remedy.Found {
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
		o := ctl(append([]string{"--host", hosts + "i40e.txtar", "capture", "-o", "-"}, strings.Fields(args)...)...)
		if got, _, _ := strings.Cut(o.stdout, "-- "); got != first || o.exit != 0 {
			t.Errorf("%q: %q, %s; want %q", args, got, o.stderr, first)
		}
	}
}

func TestCaptureOfThisMachineCanBeLookedAt(t *testing.T) {
	t.Setenv("DEVINFO_NODE_CONFIG", filepath.Join(t.TempDir(), "none.json"))
	file := filepath.Join(t.TempDir(), "here.txtar")
	if o := ctl("capture", "--scrub", "-o", file); o.exit != 0 || o.stdout != "" {
		t.Fatalf("%+v", o)
	}
	here, there := ctl("topology", "-o", "json"), ctl("--host", file, "topology", "-o", "json")
	if here.exit != 0 || here.stdout != there.stdout {
		t.Errorf("the machine has\n%+v\nits capture\n%+v", here, there)
	}
}

func TestCaptureWritesAWholeFileOrNone(t *testing.T) {
	dir := t.TempDir()
	for _, to := range []string{dir, filepath.Join(dir, "nowhere", "file")} {
		o := ctl("--host", nodeHost, "capture", "-o", to)
		if o.exit == 0 || strings.Count(o.stderr, "\n") != 2 {
			t.Errorf("%s: %+v", to, o)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}
