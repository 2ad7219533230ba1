package inject_test

import (
	"testing"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/attachment"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/inject"
	"devinfo-cni.io/pkg/journal"
)

func byClaim(e *journal.Entry) {
	e.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_RESOURCE_CLAIM=vf"
}

// A claim is for the containers that list it, and CDI gives it to those. The agent knows not
// which they are.
func TestWhatAPodHasByAClaimIsTheClaimsToGive(t *testing.T) {
	r := newRig(t)
	r.options.WhenMissing = inject.Refuse
	nri := r.running()
	claimed := attachment.ClaimFileName("other-net", sandbox, "net3") // of a plugin that the journal does not know
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
	r.told("nothing", "injected")
}
