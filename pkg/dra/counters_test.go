package dra_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	discovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"devinfo-cni.io/pkg/dra"
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

func TestAPFIsOfferedBesideItsVFsWhereTheServerCounts(t *testing.T) {
	for name, test := range map[string]struct {
		mutate func(*resourceapi.ResourceSlice)
		want   []string
	}{
		"with counters":    {nil, []string{"cni", igbPF, igbVF0, igbVF1}},
		"without counters": {counterless, []string{"cni", igbVF0, igbVF1}},
	} {
		t.Run(name, func(t *testing.T) {
			client := server(test.mutate)
			kubelet(t, client, 0, func(o *dra.Options) { o.Inventory = eitherInventory(t) })
			all := devicesIn(t, client, test.want...)
			if got := len(all[igbVF0].ConsumesCounters); (got > 0) != (test.mutate == nil) {
				t.Errorf("%d counters are consumed", got)
			}
		})
	}
}

// That of Kubernetes 1.36 needs seconds for a pod where there are many VFs.
func TestCountersAreForASchedulerThatIsQuickWithThem(t *testing.T) {
	for server, want := range map[string][]string{
		"v1.36.3": {"cni", igbVF0, igbVF1}, "v1.37.0-rc.1+k": {"cni", igbPF, igbVF0, igbVF1}, "v2.0": {"cni", igbPF, igbVF0, igbVF1}, "": {"cni", igbVF0, igbVF1},
	} {
		t.Run(server, func(t *testing.T) {
			client := counting(t, server)
			kubelet(t, client, 0, func(o *dra.Options) {
				o.Inventory = eitherInventory(t)
				o.Inventory.ForceCounters = false
			})
			devicesIn(t, client, want...)
		})
	}
}

// Until the server tells its version nothing is published, and somebody has to learn why.
func TestAServerThatDoesNotTellItsVersionIsNamedInTheLog(t *testing.T) {
	client := counting(t, "v1.37.0")
	var up atomic.Bool
	client.PrependReactor("get", "version", func(clienttesting.Action) (bool, runtime.Object, error) {
		if up.Load() {
			return false, nil, nil
		}
		return true, nil, errors.New("no such host")
	})
	said := make(chan string, 10)
	kubelet(t, client, 0, func(o *dra.Options) {
		o.Inventory = eitherInventory(t)
		o.Inventory.ForceCounters = false
		o.Log = slog.New(lines{slog.DiscardHandler, func(message string) {
			if strings.Contains(message, "nothing is published") {
				said <- message
			}
		}})
	})
	select {
	case <-said:
	case <-time.After(time.Minute):
		t.Error("it waits without a word")
	}
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
			_, err := agent.Prepare(t.Context(), ownClaim("u1", pair[0], network(`{"type":"host-device"}`)))
			must(t, err)
			_, err = agent.Prepare(t.Context(), ownClaim("u2", pair[1], network(`{"type":"host-device"}`)))
			if err == nil || !strings.Contains(err.Error(), "a claim holds "+pair[0]) {
				t.Errorf("%s beside %s: %v", pair[1], pair[0], err)
			}
		})
	}
}

// The scheduler knows nothing of a VF that is withheld, and would take its PF for free.
func TestAPFIsWithheldWithItsVF(t *testing.T) {
	r, p := newRig(t), newPlugins()
	client := server(nil)
	_, agent, _ := kubeletOf(t, client, 0, func(o *dra.Options) {
		log := o.Log
		*o = r.options
		o.Exec, o.Log, o.Inventory = p, log, eitherInventory(t)
	})
	r.agent = agent
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
