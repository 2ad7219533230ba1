package inject_test

import (
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
)

// ADD writes its entry before the file.
func TestANetworkIsToldOfOnceItsFileIsThere(t *testing.T) {
	r := newRig(t)
	nri := r.serve()
	nri.run()
	told := func() string { return r.staged(sandbox)["network-info.json"] }
	r.attach("macvlan-net", sandbox, "net2", "")
	_, err := nri.create(pod(), container())
	must(t, err)
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
		_, _, err := a.CreateContainer(t.Context(), pod(), container())
		must(t, err)
		got := r.staged(sandbox)["network-info.json"]
		if strings.Contains(got, "net1") != (want != "") || !strings.Contains(got, want) || !strings.Contains(got, `"macvlan-net"`) {
			t.Errorf("told of %s", got)
		}
		if want == "" && !slices.Equal(r.names(sandbox), []string{"network-info.json"}) {
			t.Errorf("files %q", r.names(sandbox))
		}
	}
}
