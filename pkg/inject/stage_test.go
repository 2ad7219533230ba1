package inject_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
)

// A reader of network-info.json finds the files of what it names, also when the agent is
// killed between two of them. A directory that is in the way stands for the kill.
func TestAllNetworksAreToldAfterEachAndForgottenBefore(t *testing.T) {
	r := newRig(t)
	a := r.opened()
	for n := range 20 { // by chance the order is right in one of a million
		p := pod()
		p.Id = fmt.Sprint("pod", n)
		dir := filepath.Join(r.options.StageDir, p.Id, "devinfo")
		file, all := filepath.Join(dir, "net1.json"), filepath.Join(dir, "network-info.json")
		r.attach("sriov-net", p.Id, "net1", vfInfo)
		must(t, os.MkdirAll(file, 0o755))
		r.make(a, p, container())
		if _, err := os.Stat(all); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("without the file of net1 all are told of: %v", err)
		}
		must(t, os.Remove(file))

		r.make(a, p, container())
		must(t, os.Remove(all))
		must(t, os.Mkdir(all, 0o755))
		r.detach("sriov-net", p.Id, "net1")
		r.attach("macvlan-net", p.Id, "net2", "")
		r.make(a, p, container())
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("while net1 is still told of: %v", err)
		}
	}
}

// ADD writes its entry before the file.
func TestANetworkIsToldOfOnceItsFileIsThere(t *testing.T) {
	r := newRig(t)
	nri := r.running()
	told := func() string { return r.staged(sandbox)["network-info.json"] }
	r.attach("macvlan-net", sandbox, "net2", "")
	nri.make(pod(), container())
	r.attach("sriov-net", sandbox, "net1", "", func(e *journal.Entry) { e.Wrote = true })
	r.eventually("noticed", func() bool { return strings.Contains(r.log.text(), "its device-info file") })
	if got := told(); strings.Contains(got, "net1") || !strings.Contains(got, "net2") {
		t.Errorf("told of %s", got)
	}
	must(t, store.Open(r.node.DeviceInfoDir).Write("sriov-net-"+sandbox+"_net1", []byte(vfInfo)))
	r.eventually("told", func() bool { return strings.Contains(told(), "net1") })
	if got := r.staged(sandbox)["net1.json"]; got != vfInfo {
		t.Errorf("got %q", got)
	}
}

// With delegates the file may be there long before ADD ends. Of two entries for an interface
// the one that is complete counts, whichever is read first.
func TestANetworkIsNotToldOfWhileItsDelegatesRun(t *testing.T) {
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
			t.Errorf("told of %s", got)
		}
		if want == "" && !slices.Equal(r.names(sandbox), []string{"network-info.json"}) {
			t.Errorf("files %q", r.names(sandbox))
		}
	}
}
