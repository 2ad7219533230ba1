package dra_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/test/difftest"
)

func TestMissingPluginLeavesNoPendingDELAndNoLease(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		p.missing["sriov"] = true
		r.prepareVF0()
		sb := r.sandbox("s1", "pod")
		says(t, r.runPod(sb), "not installed")
		r.expectHolders("pci-0000:03:00.2")
		r.endPod(sb)
		if took := r.unprepare("u1"); took > 0 || p.calls("") > 0 {
			t.Errorf("after %v, with %q", took, p.started)
		}
		r.expectNothing()
	})
}

func TestLateNetworkDelaysContainersButNotSandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		failures := 2
		p.setHook(func(command, _, ifName string) error {
			if command == "ADD" && ifName == "net2" && failures > 0 {
				failures--
				return errors.New("no lease")
			}
			return nil
		})
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}, netRequest{"y", "net2", "late 10s"}))
		began := time.Now()
		sb := r.runSandbox("s1", "pod")
		difftest.Same(t, "the sandbox waits", time.Since(began), time.Duration(0))
		must(t, r.createContainer(sb, "u1_x"))
		says(t, r.createContainer(sb, "u1_y"), "unresolvable CDI device")
		time.Sleep(time.Minute)
		if err := r.createContainer(sb, "u1_y"); err != nil || p.calls("ADD s1 net2") != 3 || p.calls("DEL s1 net2") != 2 || p.calls("DEL s1 net1") != 0 {
			t.Errorf("%v, %q", err, p.started)
		}
		r.endAndUnprepare(sb, "u1")
	})
}

// Device nodes and metadata need no network namespace.
func TestOnlyPodWithNetworkNeedsVisibleNamespace(t *testing.T) {
	const hostNetwork = "pod ns/pod: it is in the host's network namespace, and its claim of driver cni.dra.networking.x-k8s.io has a network; " +
		"remove spec.hostNetwork from the pod, or the network from the claim"
	for why, change := range map[string]func(*rig, *api.PodSandbox){
		hostNetwork:       func(_ *rig, sb *api.PodSandbox) { sb.Linux.Namespaces = sb.Linux.Namespaces[:1] },
		"HostToContainer": (*rig).removeNetns,
	} {
		onNode(t, func(t *testing.T, r *rig, p *plugins) {
			r.prepare(ownClaim("u1", vf3, ""))
			sb := r.sandbox("s1", "pod")
			change(r, sb)
			if why == hostNetwork {
				must(t, r.runPod(sb), r.createContainer(sb, "u1_r_"+vf3))
			}
			r.prepare(r.claimOf("a", "u2", "pod", netRequest{"x", "net1", ""}))
			says(t, r.runPod(sb), why)
			r.expectCalls("", 0)
			r.unprepare("u1")
			r.unprepare("u2")
			r.expectNothing()
		})
	}
}

func TestPodIsAttachedAndDetachedOnce(t *testing.T) {
	r := newRig(t)
	agent := r.start()
	r.prepare(r.claimOf("b", "u2", "pod", netRequest{"x", "net3", ""}), r.claimOf("a", "u1", "pod", netRequest{"x", "net1", "info"}, netRequest{"y", "net2", ""}))
	if r.calls() != nil || r.files("cdi") != nil {
		t.Error("Prepare ran a plugin or opened a gate")
	}
	sb := r.runSandbox("s1", "pod")
	r.expectInterfaces("s1_net1", "s1_net2", "s1_net3")
	r.expectFiles("cdi", 3)
	others := &api.PodSandbox{Id: "s9", Uid: "other"} // its pod has no claim
	for _, sb := range []*api.PodSandbox{sb, sb, others} {
		must(t, agent.RunPodSandbox(t.Context(), sb))
	}
	for _, sb := range []*api.PodSandbox{sb, sb, others} {
		must(t, agent.StopPodSandbox(t.Context(), sb))
		must(t, agent.RemovePodSandbox(t.Context(), sb))
	}
	want := []string{"ADD s1 net1", "ADD s1 net2", "ADD s1 net3", "DEL s1 net1", "DEL s1 net2", "DEL s1 net3"}
	difftest.Equal(t, slices.Sorted(slices.Values(r.callNames())), want)
	for _, uid := range []string{"u1", "u2", "u1", "never"} {
		must(t, agent.Unprepare(t.Context(), uid))
	}
	r.expectNothing()
}

func TestDELRepeatsArgumentsOfADDBeforeNextADD(t *testing.T) {
	r := newRig(t)
	agent := r.start()
	sb := r.attachPod(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
	must(t, agent.RunPodSandbox(t.Context(), r.sandbox("s2", "pod")))
	must(t, agent.StopPodSandbox(t.Context(), sb)) // late, after the next sandbox was attached
	r.expectInterfaces("s2_net1")
	r.removeNetns(r.sandbox("s2", "pod"))
	must(t, agent.Unprepare(t.Context(), "u1"))
	args := func(sandbox string) string {
		return "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_INFRA_CONTAINER_ID=" + sandbox + ";K8S_POD_UID=uid-pod;K8S_RESOURCE_CLAIM=a"
	}
	netns := filepath.Join(r.dir, "netns/")
	difftest.Equal(t, r.calls(), []call{
		{"ADD", "s1", "net1", netns + "/s1", args("s1"), false},
		{"DEL", "s1", "net1", netns + "/s1", args("s1"), true},
		{"ADD", "s2", "net1", netns + "/s2", args("s2"), false},
		{"DEL", "s2", "net1", "", args("s2"), true},
	})
}

func TestFailingPluginFailsPodAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for behave, part := range map[string]string{
		"refuse":       "no address left",
		"corrupt info": "fix the CNI plugin that wrote it",
	} {
		t.Run(behave, func(t *testing.T) {
			r := newRig(t)
			agent := r.start()
			stop := r.stop
			r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}, netRequest{"y", "net2", behave}, netRequest{"z", "net3", ""}))
			err := agent.RunPodSandbox(t.Context(), r.sandbox("s1", "pod"))
			says(t, err, part)
			want := []string{"ADD s1 net1", "ADD s1 net2", "ADD s1 net3", "DEL s1 net1", "DEL s1 net2", "DEL s1 net3"}
			difftest.Equal(t, slices.Sorted(slices.Values(r.callNames())), want)
			difftest.Eventually(t, "a status", func() bool { return len(r.lastReport().Devices) == 3 })
			for _, d := range r.lastReport().Devices {
				c := d.Conditions[0]
				if c.Type != "Ready" || c.Status != metav1.ConditionFalse || c.Reason != "NetworkInterfaceNotReady" || !strings.Contains(c.Message, part) {
					t.Errorf("got %+v", c)
				}
			}
			must(t, agent.Unprepare(t.Context(), "u1"))
			stop()
			r.expectNothing()
		})
	}
}

func TestPrepareAgainReturnsNetworkMetadata(t *testing.T) {
	r := newRig(t)
	agent := r.start()
	claim := r.claimOf("a", "u1", "pod", netRequest{"x", "net1", "info"})
	share := "share-u1x"
	want := []kubeletplugin.Device{{Requests: []string{"x"}, PoolName: "node1", DeviceName: "cni", ShareID: (*types.UID)(&share),
		CDIDeviceIDs: []string{driverName + "/claim=u1_x"}}}
	got, err := agent.Prepare(t.Context(), claim)
	must(t, err)
	difftest.Equal(t, got, want)
	must(t, agent.RunPodSandbox(t.Context(), r.sandbox("s1", "pod")))
	want[0].Metadata = &kubeletplugin.DeviceMetadata{
		NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.0.0.2/24"}, HardwareAddress: "02:00:00:00:00:01"},
	}
	difftest.Equal(t, r.metadata, want)
	claim.Status.Allocation.Devices.Config = nil // an accepted claim stays accepted
	for range 2 {
		got, err := agent.Prepare(t.Context(), claim)
		must(t, err)
		difftest.Equal(t, got, want)
		agent = r.start()
	}
}

func TestHangingDELsDoNotDelayADDs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		agent := r.start()
		p.setHook(func(command, sandbox, _ string) error {
			if command == "DEL" && strings.HasPrefix(sandbox, "hung") {
				time.Sleep(claim.PluginLimit)
				return errors.New("ended")
			}
			return nil
		})
		const hung = 60 // more than the lane has room for
		for n := range hung {
			pod := fmt.Sprint("hung", n)
			r.prepare(r.claimOf("a", pod, pod, netRequest{"x", "net1", ""}))
			sb := r.runSandbox(pod, pod)
			go r.endPod(sb)
		}
		time.Sleep(10 * time.Second)
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}), r.claimOf("a", "u2", "late", netRequest{"x", "net1", ""}))
		began := time.Now()
		must(t, r.runPod(r.sandbox("s1", "pod")))
		must(t, r.runPod(r.sandbox("s2", "late")))
		if took := time.Since(began); took > 0 || p.calls("ADD s2") != 1 {
			t.Errorf("after %v: %q", took, p.interfaceNames())
		}
		time.Sleep(time.Hour)
		if agent.Census().Phases["Deleting"]+agent.Census().Phases["Undeleted"] != hung {
			t.Errorf("got %v", agent.Census())
		}
	})
}

func TestNetworksOfPodAreAttachedInParallel(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"v", "net1", "350ms"}, netRequest{"w", "net2", "350ms"}, netRequest{"x", "net3", "350ms"}),
			r.claimOf("b", "u2", "pod", netRequest{"y", "net4", "350ms"}, netRequest{"z", "net5", "350ms"}))
		began := time.Now()
		must(t, r.runPod(r.sandbox("s1", "pod")))
		difftest.Equal(t, time.Since(began), 350*time.Millisecond)
		difftest.Equal(t, len(p.interfaceNames()), 5)
	})
}
