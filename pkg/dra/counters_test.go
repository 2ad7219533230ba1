package dra_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	discovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/inventory"
)

const igbPF, igbVF0, igbVF1 = "pci-0000-41-00-0", "pci-0000-41-10-0", "pci-0000-41-10-2"

// eitherInventory offers a PF whole beside its VFs.
func eitherInventory(t *testing.T) *dra.Inventory {
	t.Helper()
	offered := newNode(t, "igb-sriov").inventory()
	var err error
	offered.Rules, err = inventory.ParseRules([]byte("devices:\n- pciAddresses: ['0000:41:00.0', '0000:41:10.0', '0000:41:10.2']\n  as: exclusive\n"))
	must(t, err)
	offered.Counters, offered.ForceCounters = true, true
	return offered
}

func counterless(slice *resourceapi.ResourceSlice) {
	slice.Spec.SharedCounters = nil
	for n := range slice.Spec.Devices {
		slice.Spec.Devices[n].ConsumesCounters = nil
	}
}

// The scheduler of Kubernetes 1.36 needs seconds for a pod where there are many VFs.
func TestAPFIsOfferedBesideItsVFsWhereTheServerCountsAndTheSchedulerIsQuick(t *testing.T) {
	t.Parallel()
	with, without := []string{"cni", igbPF, igbVF0, igbVF1}, []string{"cni", igbVF0, igbVF1}
	for name, test := range map[string]struct {
		client *fake.Clientset
		force  bool
		want   []string
	}{
		"forced": {server(nil), true, with}, "not kept": {server(counterless), true, without}, "v1.36.3": {counting(t, "v1.36.3"), false, without},
		"v1.37.0-rc.1+k": {counting(t, "v1.37.0-rc.1+k"), false, with}, "v2.0": {counting(t, "v2.0"), false, with}, "no version": {counting(t, ""), false, without},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.options.Inventory = eitherInventory(t)
			r.options.Inventory.ForceCounters = test.force
			r.kubelet(test.client, 0)
			all := devicesIn(t, test.client, test.want...)
			if got := len(all[igbVF0].ConsumesCounters); (got > 0) != (len(test.want) == len(with)) {
				t.Errorf("%d counters are consumed", got)
			}
		})
	}
}

// Until the server tells its version nothing is published, and somebody has to learn why.
func TestAServerThatDoesNotTellItsVersionIsNamedInTheLog(t *testing.T) {
	t.Parallel()
	client := counting(t, "v1.37.0")
	var up atomic.Bool
	client.PrependReactor("get", "version", func(clienttesting.Action) (bool, runtime.Object, error) {
		if up.Load() {
			return false, nil, nil
		}
		return true, nil, errors.New("no such host")
	})
	said := make(chan string, 10)
	r := newRig(t)
	r.options.Inventory = eitherInventory(t)
	r.options.Inventory.ForceCounters = false
	r.options.Log = slog.New(lines{slog.DiscardHandler, func(message string) {
		if strings.Contains(message, "nothing is published") {
			said <- message
		}
	}})
	r.kubelet(client, 0)
	r.eventually("it says what it waits for", func() bool { return len(said) > 0 })
	<-said
	up.Store(true)
	devicesIn(t, client, "cni", igbPF, igbVF0, igbVF1)
	if len(said) > 0 {
		t.Errorf("it says so again: %q", <-said)
	}
}

// counting is an API server of a version.
func counting(t *testing.T, is string) *fake.Clientset {
	t.Helper()
	client := server(nil)
	client.Discovery().(*discovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: is}
	return client
}

// Should the scheduler not count, Prepare does.
func TestAPFAndItsVFAreNotPreparedTogether(t *testing.T) {
	for _, pair := range [][2]string{{igbPF, igbVF0}, {igbVF0, igbPF}} {
		timeless(t, func(t *testing.T, r *rig, _ *plugins) {
			r.options.Inventory = eitherInventory(t)
			agent := r.start()
			r.prepare(ownClaim("u1", pair[0], network(`{"type":"host-device"}`)))
			_, err := agent.Prepare(t.Context(), ownClaim("u2", pair[1], network(`{"type":"host-device"}`)))
			says(t, err, "a claim holds "+pair[0])
		})
	}
}

// The scheduler knows nothing of a VF that is withheld, and would take its PF for free.
func TestAPFIsWithheldWithItsVF(t *testing.T) {
	t.Parallel()
	r, p := newRig(t), newPlugins()
	client := server(nil)
	r.options.Exec, r.options.Inventory = p, eitherInventory(t)
	r.kubelet(client, 0)
	devicesIn(t, client, "cni", igbPF, igbVF0, igbVF1)
	p.set(always)
	r.prepare(ownClaim("u1", igbVF0, network(`{"type":"host-device"}`)))
	if r.runPod(r.sandbox("s1", "pod")) == nil {
		t.Fatal("no error")
	}
	devicesIn(t, client, "cni", igbVF1)
	p.set(nil)
	devicesIn(t, client, "cni", igbPF, igbVF0, igbVF1)
}

// offerOf waits until the state directory says of a device what it should.
func offerOf(t *testing.T, dir, name string, want state.Offered) {
	t.Helper()
	until(t, func() string {
		for _, d := range offered(t, dir).Devices {
			if d.Name == name {
				return cmp.Diff(want, d)
			}
		}
		return "it is not there"
	})
}

// offered is what the state directory says.
func offered(t *testing.T, dir string) state.Offer {
	t.Helper()
	o, err := state.ReadOffer(dir)
	must(t, err)
	if o == nil {
		return state.Offer{}
	}
	return *o
}

func TestTheStateDirectorySaysWhatIsOffered(t *testing.T) {
	t.Parallel()
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	r.offering(server(nil), n, p)
	dir := r.options.StateDir
	third := state.Offered{Name: vf3, Kind: "vf", PCI: "0000:03:00.5", As: "exclusive", ResourceName: "example.com/vf"}
	offerOf(t, dir, vf3, third)
	offerOf(t, dir, sf4, state.Offered{Name: sf4, Kind: "sf", Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88", As: "exclusive"})
	offerOf(t, dir, pf, state.Offered{Name: pf, Kind: "pf", PCI: "0000:03:00.0", IfName: "p0", As: "shared"})
	n.change(func() { n.others = map[string]string{"0000:03:00.5": "pod ns/x has it"} })
	third.ResourceName, third.Why = "", "pod ns/x has it"
	offerOf(t, dir, vf3, third)
}

func TestTheStateDirectoryNamesTheRulesWithoutADevice(t *testing.T) {
	t.Parallel()
	r, n := newRig(t), newNode(t, "igb-sriov")
	n.rules = "devices: [{drivers: [igbvf], as: exclusive}, {ifNames: [eth77], as: exclusive}]"
	r.offering(server(nil), n, newPlugins())
	want := []state.Idle{{Rule: "devices[1] (ifNames: eth77)", Why: "there is no interface eth77; the nearest is eth7"}}
	until(t, func() string { return cmp.Diff(want, offered(t, r.options.StateDir).Idle) })
}

// The rule goes by what a PF in a pod no longer has, and its VFs are still there.
func TestTheVFsOfAPFThatMultusHasGivenAwayAreNotPrepared(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, _ *plugins) {
		n := newNode(t, "igb-sriov")
		n.rules = "devices: [{drivers: [igbvf], as: exclusive}, {ifNames: [eth1], as: exclusive}]"
		n.without("eth1")
		r.options.Inventory = n.inventory()
		r.options.Journal = journalIn(r.dir, "boot1")
		agent := r.start()
		r.sandbox("s0", "other")
		r.multus(multus("other", "s0", r.netns("s0"), exclusive("pci-0000:41:00.0")))
		_, err := agent.Prepare(t.Context(), ownClaim("u1", igbVF0, network(`{"type":"sriov"}`)))
		says(t, err, igbPF+", which it is on: pod ns/other (net7, network sriov-net) has it")
	})
}
