package inject_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/attachment"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/inject"
	"devinfo-cni.io/pkg/journal"
)

// A reader of network-info.json finds each file that it names, even if the agent is killed
// between two writes. The test simulates the kill with a directory at the path of the second file.
func TestNetworkInfoNamesOnlyExistingFiles(t *testing.T) {
	r := newRig(t)
	a := r.opened()
	for n := range 20 { // if the order were random, 20 correct rounds would have a chance of 1 in a million
		p := pod()
		p.Id = fmt.Sprint("pod", n)
		dir := filepath.Join(r.options.StageDir, p.Id, "devinfo")
		file, all := filepath.Join(dir, "net1.json"), filepath.Join(dir, "network-info.json")
		r.attach("sriov-net", p.Id, "net1", vfInfo)
		must(t, os.MkdirAll(file, 0o755))
		r.make(a, p, container())
		if _, err := os.Stat(all); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("network-info.json exists before the file of net1: %v", err)
		}
		must(t, os.Remove(file))

		r.make(a, p, container())
		must(t, os.Remove(all))
		must(t, os.Mkdir(all, 0o755))
		r.detach("sriov-net", p.Id, "net1")
		r.attach("macvlan-net", p.Id, "net2", "")
		r.make(a, p, container())
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("network-info.json names net1, whose file is missing: %v", err)
		}
	}
}

// ADD writes the journal entry before the file.
func TestNetworkIsListedOnceItsFileExists(t *testing.T) {
	r := newRig(t)
	nri := r.running()
	listed := func() string { return r.staged(sandbox)["network-info.json"] }
	r.attach("macvlan-net", sandbox, "net2", "")
	nri.make(pod(), container())
	r.attach("sriov-net", sandbox, "net1", "", func(e *journal.Entry) { e.Wrote = true })
	r.eventually("noticed", func() bool { return strings.Contains(r.log.text(), "cannot use the device-info file") })
	if got := listed(); strings.Contains(got, "net1") || !strings.Contains(got, "net2") {
		t.Errorf("network-info.json: %s", got)
	}
	must(t, store.Open(r.node.DeviceInfoDir).Write("sriov-net-"+sandbox+"_net1", []byte(vfInfo)))
	r.eventually("listed", func() bool { return strings.Contains(listed(), "net1") })
	difftest.Equal(t, compact(t, r.staged(sandbox)["net1.json"]), vfInfo)
}

// With delegates the file may exist long before ADD ends. If an interface has two entries, the
// complete one is used, in any order of reading.
func TestNetworkIsNotListedWhileItsDelegatesRun(t *testing.T) {
	r := newRig(t)
	a := r.opened()
	adding := func(e *journal.Entry) { e.Complete = false }
	r.attach("macvlan-net", sandbox, "net2", "")
	r.attach("sriov-net", sandbox, "net1", vfInfo, adding)
	for _, want := range []string{"", `"other-net"`} {
		if want != "" {
			r.attach("other-net", sandbox, "net1", "")
			r.attach("a-net", sandbox, "net2", "", adding)
		}
		r.make(a, pod(), container())
		got := r.staged(sandbox)["network-info.json"]
		if strings.Contains(got, "net1") != (want != "") || !strings.Contains(got, want) || !strings.Contains(got, `"macvlan-net"`) {
			t.Errorf("network-info.json: %s", got)
		}
		if want == "" && !slices.Equal(r.names(sandbox), []string{"network-info.json"}) {
			t.Errorf("files %q", r.names(sandbox))
		}
	}
}

// The author of a pod chooses the names of its interfaces. CNI allows all names that the kernel
// allows, which excludes only slash, colon and space.
func TestMaliciousInterfaceNamesAreHarmless(t *testing.T) {
	r := newRig(t)
	nri := r.running()
	for _, ifName := range []string{`a"b`, "x=y", "\x1b[31m", "$(id)", "..net1", "ü", "network-info"} {
		r.attach("sriov-net", sandbox, ifName, vfInfo)
	}
	got := nri.make(pod(), container())
	want := []string{"$(id).json", "..net1.json", "\x1b[31m.json", `a"b.json`, "network-info.json", "x=y.json", "ü.json"}
	slices.Sort(want)
	difftest.Equal(t, r.names(sandbox), want)
	var all struct{ Interfaces []struct{ Interface string } }
	must(t, json.Unmarshal([]byte(r.staged(sandbox)["network-info.json"]), &all))
	if len(all.Interfaces) != 7 {
		t.Errorf("%+v", all)
	}
	for _, e := range got.GetEnv() {
		if strings.Trim(e.Key, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" {
			t.Errorf("variable %q", e.Key)
		}
	}
	difftest.Holds(t, r.options.StageDir, sandbox)
}

// An annotation may have 256 KiB, and its value appears in logs and events.
func TestLongAnnotationIsShortenedInLogs(t *testing.T) {
	r := newRig(t)
	nri := r.running()
	huge := strings.Repeat("x\n\x1b", 80_000)
	_, err := nri.create(pod("devinfo-cni.io/require="+huge), container())
	if err == nil || len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\n\x1b") || !strings.Contains(err.Error(), "pod shop/web, container app: the pod has no interface ") {
		t.Errorf("the runtime gets %.1000q", err)
	}
	nri.make(pod("devinfo-cni.io/inject="+huge), container())
	if text := r.log.text(); len(text) > 3000 || strings.Contains(text, "\x1b") || !strings.Contains(text, "annotation ignored") {
		t.Errorf("%d bytes of log", len(text))
	}
	r.expect("rejected required", "nothing")
}

func byClaim(e *journal.Entry) {
	e.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_RESOURCE_CLAIM=vf"
}

// CDI injects a claim into the containers that list it. The agent does not know which
// containers these are.
func TestAttachmentsOfClaimsAreLeftToCDI(t *testing.T) {
	r := newRig(t)
	r.options.MissingInfo = inject.Reject
	nri := r.running()
	claimed := attachment.ClaimFileName("other-net", sandbox, "net3") // written by a plugin without a journal entry
	r.attach("sriov-net", sandbox, "net1", vfInfo, byClaim)
	r.attach("delegating", sandbox, "net4", vfInfo, byClaim, func(e *journal.Entry) { e.Complete = false })
	must(t, store.Open(r.node.DeviceInfoDir).Write(claimed, []byte(vfInfo)))
	got, err := nri.create(pod(), container())
	if text := r.text(got); err != nil || text != "" || r.staged(sandbox) != nil {
		t.Errorf("%q, %v, %q", text, err, r.staged(sandbox))
	}

	r.attach("macvlan-net", sandbox, "net2", "")
	got, err = nri.create(pod("devinfo-cni.io/require=net1"), container())
	if text := r.text(got); err != nil || text != theDirectory {
		t.Errorf("%q, %v", text, err)
	}
	all := `{"interfaces":[{"network":"macvlan-net","mac":"4e:3b:00:00:00:08","mtu":1500,"interface":"net2"}]}`
	difftest.Equal(t, compact(t, r.staged(sandbox)["network-info.json"]), all)
	difftest.Equal(t, r.names(sandbox), []string{"network-info.json"})
	r.expect("nothing", "injected")
}
