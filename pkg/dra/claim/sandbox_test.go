package claim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

func TestMain(m *testing.M) { dratest.Main(m) }

// createContainer returns the driver's answer to a runtime that creates a container.
func createContainer(r *dratest.Rig, sb *api.PodSandbox) error {
	_, _, err := r.Agent.CreateContainer(r.T.Context(), sb, nil)
	return err
}

// failFirst fails the first ADDs of an interface of sandbox s1.
func failFirst(r *dratest.Rig, failures int, of string) {
	r.Plugins.SetHook(func(command, sandbox, ifName string) error {
		if command == "ADD" && sandbox == "s1" && ifName == of && failures > 0 {
			failures--
			return errors.New("no lease")
		}
		return nil
	})
}

// No container starts before its pod's networks, whether or not it names their claim.
func TestSlowNetworkIsAttachedBesideItsSandbox(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		failFirst(r, 3, "net1")
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "5s"), dratest.Net("y", "net2", "")), r.ClaimOf("a", "u2", "quick", dratest.Net("x", "net1", "")))
		began := time.Now()
		sb := r.RunSandbox("s1", "pod")
		difftest.Same(t, "the runtime waits", time.Since(began), claim.DefaultHold)
		difftest.Says(t, createContainer(r, sb), "pod ns/pod: network net (net1, claim a) is not attached", "500ms ago: its ADD has not ended")
		difftest.Says(t, r.CreateContainer(sb, "u1_x"), "unresolvable CDI device")
		quick := r.RunSandbox("s2", "quick")
		difftest.Same(t, "the runtime waits for both", time.Since(began), claim.DefaultHold)
		dratest.WaitIdle()
		difftest.Must(t, createContainer(r, quick), r.CreateContainer(quick, "u2_x"), createContainer(r, r.Sandbox("s3", "of no claim")))
		time.Sleep(5 * time.Second)
		difftest.Says(t, createContainer(r, sb), "net1", "5.6s ago: its last ADD failed", "no lease")
		time.Sleep(time.Minute)
		difftest.Must(t, createContainer(r, sb), r.CreateContainer(sb, "u1_x", "u1_y"))
		difftest.Same(t, "ADDs", r.Plugins.Calls("ADD s1 net1"), 4)
		difftest.Equal(t, r.Notices(), []string{claim.NoticeFailed})
		r.Start()
		r.ListSandboxes(sb, quick)
		difftest.Must(t, createContainer(r, sb))
		r.EndPod(quick)
		r.Unprepare("u2")
		r.EndAndUnprepare(sb, "u1")
	})
}

// An ADD that fails while the runtime waits fails the sandbox, as the Device Configuration API asks. Claims of other pods are
// checked while the networks of the pod's own are attached, and the runtime waits for both.
func TestADDThatFailsWhileClaimsAreCheckedFailsSandbox(t *testing.T) {
	for _, answer := range []error{nil, errors.New("no answer")} {
		for _, took := range []time.Duration{0, 200 * time.Millisecond, time.Second} { // within the budget and beyond it
			dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
				r.Options.ClaimsOf = func(context.Context, state.Pod) ([]string, error) { time.Sleep(took); return nil, answer }
				r.Start()
				r.Plugins.SetHook(dratest.Fail("ADD", "s1"))
				r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "100ms")), r.ClaimOf("named", "u2", "other", dratest.Net("x", "net1", "")))
				sb := r.Sandbox("s1", "pod")
				difftest.Says(t, r.RunPod(sb), dratest.ErrNoMaster.Error())
				difftest.Says(t, createContainer(r, sb), dratest.ErrNoMaster.Error())
				r.Unprepare("u2")
				r.EndAndUnprepare(sb, "u1")
				time.Sleep(took) // the check ends
			})
		}
	}
}

// NRI ends the connection of a plugin that answers with more than 4 MiB, and the runtime waits 2 s for the answer.
func TestLongErrorOfPluginIsCut(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		r.Plugins.SetHook(func(command, _, _ string) error { return errors.New(command + strings.Repeat("é", 3<<20)) })
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""), dratest.Net("y", "net2", "")))
		for _, sandbox := range []string{"s1", "s2"} {
			sb := r.Sandbox(sandbox, "pod")
			for call, err := range map[string]error{"RunPodSandbox": r.RunPod(sb), "CreateContainer": createContainer(r, sb)} {
				if difftest.Says(t, err, map[string]string{"s1": "ADDé", "s2": "DELé"}[sandbox]); len(err.Error()) > 1<<20 {
					t.Errorf("%s: the error has %d bytes", call, len(err.Error()))
				}
			}
			r.EndPod(sb)
		}
	})
}

// The kubelet tries a new sandbox again and again while a plugin hangs for an earlier one.
func TestNextSandboxFailsWhilePluginsOfEarlierOneRun(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "1m")))
		r.EndPod(r.RunSandbox("s1", "pod"))
		next := r.Sandbox("s2", "pod")
		difftest.Says(t, r.RunPod(next), "the CNI plugins of an earlier sandbox, s1, are still running")
		r.EndPod(next)
		r.ExpectCalls("", 1)
		time.Sleep(time.Minute)
		last := r.RunSandbox("s3", "pod")
		time.Sleep(time.Minute)
		difftest.Must(t, r.CreateContainer(last, "u1_x"))
		difftest.Equal(t, r.CallNames(), []string{"ADD s1 net1", "DEL s1 net1", "ADD s3 net1"})
		r.EndAndUnprepare(last, "u1")
	})
}

// The runtime did not ask while the driver restarted, and may not list a sandbox whose state is uncertain.
func TestContainerOfMissedSandboxWaitsForNetworks(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		r.ListSandboxes()
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		sb := r.Sandbox("s1", "pod")
		difftest.Must(t, createContainer(r, r.Sandbox("s2", "of no claim")))
		difftest.Says(t, createContainer(r, sb), "network net (net1, claim a) is not attached")
		dratest.WaitIdle()
		difftest.Must(t, createContainer(r, sb), r.CreateContainer(sb, "u1_x"))
		// A call for a former sandbox may come late. The networks stay where the pod runs.
		difftest.Says(t, createContainer(r, r.Sandbox("s0", "pod")), "net1")
		dratest.WaitIdle()
		difftest.Must(t, createContainer(r, sb), r.CreateContainer(sb, "u1_x"))
		r.ExpectCalls("DEL", 0)
		r.EndAndUnprepare(sb, "u1")
	})
}

// All handlers wait for at most 1 s in any 10 s, whatever plugins do.
func TestHandlersHoldRuntimeWithinBudget(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		began := time.Now()
		held := map[int]time.Duration{} // in each 10 s
		for n := 0; time.Since(began) < time.Minute; n++ {
			pod := fmt.Sprint("pod", n)
			r.Prepare(r.ClaimOf("a", "u"+pod, pod, dratest.Net("x", "net1", "10m")))
			asked := time.Now()
			sb := r.RunSandbox("s"+pod, pod)
			if n%2 == 0 {
				r.EndPod(sb)
			}
			held[int(asked.Sub(began)/(10*time.Second))] += time.Since(asked)
			time.Sleep(time.Second)
		}
		for n, took := range held {
			if took > time.Second || took == 0 || len(held) < 6 {
				t.Errorf("%d: the handlers hold the runtime for %v in 10 s", n, took)
			}
		}
		if seconds := r.Samples()["devinfo_dra_nri_wait_seconds_total"]; seconds < 2 || seconds > 4 {
			t.Errorf("the metric says %v s", seconds)
		}
		time.Sleep(time.Hour)
	})
}

// A network that hangs delays no other network, although 16 ADDs of one network run beside sandboxes at most.
func TestHangingNetworkDelaysNoOther(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		for n := range 40 {
			pod := fmt.Sprint("pod", n)
			r.Prepare(r.ClaimOf("a", "u"+pod, pod, dratest.Net("x", "net1", "4m")))
			r.RunSandbox("s"+pod, pod)
		}
		r.Prepare(dratest.OnNetwork("other", r.ClaimOf("b", "u", "healthy", dratest.Net("x", "net1", "1s"))))
		sb := r.RunSandbox("s", "healthy")
		time.Sleep(1100 * time.Millisecond)
		difftest.Must(t, r.CreateContainer(sb, "u_x"))
		time.Sleep(time.Hour)
	})
}

func TestStopWaitsForRunningPlugins(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		agent := r.Start()
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "1m")))
		r.RunSandbox("s1", "pod")
		began := time.Now()
		r.Stop()
		if took := time.Since(began); took < 58*time.Second || took > time.Minute || len(r.Plugins.InterfaceNames()) != 1 || r.Plugins.Calls("DEL") != 0 {
			t.Errorf("stop took %v: %q", took, r.CallNames())
		}
		difftest.Says(t, agent.Unprepare(t.Context(), "u1"), "the driver has stopped")
		r.Start()
		began = time.Now()
		if r.Stop(); time.Since(began) > 0 {
			t.Errorf("an agent that does nothing takes %v to end", time.Since(began))
		}
	})
}

// What prevents an ADD is found before the first plugin runs.
func TestADDThatCannotBeginLeavesNoPendingDELAndNoLease(t *testing.T) {
	for says, prevent := range map[string]func(r *dratest.Rig){
		"not installed": func(r *dratest.Rig) { r.Plugins.Missing["fake"] = true },
		"the node has lost it": func(r *dratest.Rig) {
			difftest.Must(r.T, os.Remove(filepath.Join(r.Dir, "kernel/sys/bus/pci/devices/0000:03:00.2")))
		},
	} {
		dratest.InBubbleWithDevices(t, func(t *testing.T, r *dratest.Rig) {
			r.Options.Devices.Journal = dratest.JournalIn(r.Dir, "boot1")
			r.Start()
			r.Prepare(dratest.OnDevice(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")), 0, dratest.VF0, ""))
			prevent(r)
			sb := r.Sandbox("s1", "pod")
			difftest.Says(t, r.RunPod(sb), says)
			r.ExpectHolders("pci-0000:03:00.2")
			r.EndPod(sb)
			if took := r.Unprepare("u1"); took > 0 || r.Plugins.Calls("") > 0 {
				t.Errorf("after %v, with %q", took, r.CallNames())
			}
			r.ExpectNothing()
		})
	}
}

// The kubelet learns when it is attached: only its containers can have been refused.
func TestLateNetworkDelaysContainersButNotSandbox(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		var sb *api.PodSandbox
		opened := 0
		r.Start().SetOpened(func(device string) {
			opened++
			difftest.Equal(t, device, "cni")
			difftest.Must(t, r.CreateContainer(sb, "u1_y"))
		})
		failFirst(r, 2, "net2")
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""), dratest.Net("y", "net2", "late 10s")))
		began := time.Now()
		sb = r.RunSandbox("s1", "pod")
		difftest.Same(t, "the sandbox waits", time.Since(began), time.Duration(0))
		difftest.Must(t, r.CreateContainer(sb, "u1_x"))
		difftest.Says(t, r.CreateContainer(sb, "u1_y"), "unresolvable CDI device")
		time.Sleep(time.Minute)
		if err := r.CreateContainer(sb, "u1_y"); err != nil || r.Plugins.Calls("ADD s1 net2") != 3 || r.Plugins.Calls("DEL s1 net2") != 2 || r.Plugins.Calls("DEL s1 net1") != 0 {
			t.Errorf("%v, %q", err, r.CallNames())
		}
		time.Sleep(10 * time.Minute) // the sweeps
		difftest.Same(t, "times that the kubelet is woken", opened, 1)
		r.EndAndUnprepare(sb, "u1")
	})
}

// A sandbox waits for its other networks and device nodes only, whenever the worker adds or deletes a late network.
func TestSandboxNeverWaitsForLateNetwork(t *testing.T) {
	for name, test := range map[string]struct {
		late, other time.Duration // of the ADDs of net2 and net3
		fails, bare bool
	}{
		"added in the sweep while the API server does not answer":             {late: time.Hour},
		"the same, with device nodes":                                         {late: time.Hour, bare: true},
		"its ADD fails and its DEL hangs, while another claim is being added": {other: 700 * time.Millisecond, fails: true},
		"the same, before its gates list the RDMA device of the other claim":  {late: 600 * time.Millisecond, other: 500 * time.Millisecond, fails: true},
	} {
		t.Run(name, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			r.UseJournal("mlx5-switchdev", "")
			r.Options.Sweep, r.Options.Hold = 100*time.Millisecond, 2*time.Second
			r.Options.Read = func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
				time.Sleep(300 * time.Millisecond)
				return nil, errors.New("no answer")
			}
			var attached atomic.Int32
			r.Options.Reached = func(name string) {
				if name == "metadata" && attached.Add(1) == 2 { // net3 is on record, and its gate is closed
					time.Sleep(300 * time.Millisecond)
				}
			}
			r.Start()
			r.Plugins.SetHook(func(command, _, ifName string) error {
				time.Sleep(map[string]time.Duration{"ADDnet2": test.late, "ADDnet3": test.other, "DELnet2": network.PluginLimit}[command+ifName])
				if test.fails && command == "ADD" && ifName == "net2" {
					return errors.New("no lease")
				}
				return nil
			})
			made := r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""), dratest.Net("y", "net2", "late "))
			if test.bare {
				made = dratest.WithDeviceNodes(made)
			}
			r.Prepare(made, dratest.ClaimFor("u2", dratest.RequestFor("z", dratest.VF0, "net3", "sriov")), r.ClaimOf("other", "u3", "other", dratest.Net("z", "net3", "")))
			sb := r.RunSandbox("s1", "pod")
			difftest.Must(t, r.CreateContainer(sb, "u1_x"), r.CreateContainer(sb, "u2_z"))
			difftest.Says(t, r.CreateContainer(sb, "u1_y"), "unresolvable CDI device")
		}))
	}
}

// Device nodes and metadata need no network namespace.
func TestOnlyPodWithNetworkNeedsVisibleNamespace(t *testing.T) {
	const hostNetwork = "pod ns/pod: it is in the host's network namespace, and its claim of driver cni.dra.networking.x-k8s.io has a network; " +
		"remove spec.hostNetwork from the pod, or the network from the claim"
	for why, change := range map[string]func(*dratest.Rig, *api.PodSandbox){
		hostNetwork:       func(_ *dratest.Rig, sb *api.PodSandbox) { sb.Linux.Namespaces = sb.Linux.Namespaces[:1] },
		"HostToContainer": (*dratest.Rig).RemoveNetns,
	} {
		dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
			r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, ""))
			sb := r.Sandbox("s1", "pod")
			change(r, sb)
			if why == hostNetwork {
				difftest.Must(t, r.RunPod(sb), r.CreateContainer(sb, "u1_r_"+dratest.VF3))
			}
			r.Prepare(r.ClaimOf("a", "u2", "pod", dratest.Net("x", "net1", "")))
			difftest.Says(t, r.RunPod(sb), why)
			r.ExpectCalls("", 0)
			r.Unprepare("u1")
			r.Unprepare("u2")
			r.ExpectNothing()
		})
	}
}

func TestPodIsAttachedAndDetachedOnce(t *testing.T) {
	r := dratest.NewRig(t)
	agent := r.Start()
	r.Prepare(r.ClaimOf("b", "u2", "pod", dratest.Net("x", "net3", "")), r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "info"), dratest.Net("y", "net2", "")))
	if r.Calls() != nil || r.Files("cdi") != nil {
		t.Error("Prepare ran a plugin or opened a gate")
	}
	sb := r.RunSandbox("s1", "pod")
	difftest.Equal(t, r.Files("there"), []string{"s1_net1", "s1_net2", "s1_net3"})
	r.ExpectFiles("cdi", 3)
	others := &api.PodSandbox{Id: "s9", Uid: "other"} // its pod has no claim
	for _, sb := range []*api.PodSandbox{sb, sb, others} {
		difftest.Must(t, agent.RunPodSandbox(t.Context(), sb))
	}
	for _, sb := range []*api.PodSandbox{sb, sb, others} {
		difftest.Must(t, agent.StopPodSandbox(t.Context(), sb))
		difftest.Must(t, agent.RemovePodSandbox(t.Context(), sb))
	}
	want := []string{"ADD s1 net1", "ADD s1 net2", "ADD s1 net3", "DEL s1 net1", "DEL s1 net2", "DEL s1 net3"}
	difftest.Equal(t, slices.Sorted(slices.Values(r.CallNames())), want)
	for _, uid := range []string{"u1", "u2", "u1", "never"} {
		difftest.Must(t, agent.Unprepare(t.Context(), uid))
	}
	r.ExpectNothing()
}

func TestDELRepeatsArgumentsOfADDBeforeNextADD(t *testing.T) {
	r := dratest.NewRig(t)
	agent := r.Start()
	sb := r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
	difftest.Must(t, agent.RunPodSandbox(t.Context(), r.Sandbox("s2", "pod")))
	difftest.Must(t, agent.StopPodSandbox(t.Context(), sb)) // late, after the next sandbox was attached
	difftest.Equal(t, r.Files("there"), []string{"s2_net1"})
	r.RemoveNetns(r.Sandbox("s2", "pod"))
	difftest.Must(t, agent.Unprepare(t.Context(), "u1"))
	of := func(command, sandbox, netns string) dratest.Call {
		args := "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_INFRA_CONTAINER_ID=" + sandbox + ";K8S_POD_UID=uid-pod;K8S_RESOURCE_CLAIM=a"
		return dratest.Call{Command: command, Sandbox: sandbox, IfName: "net1", Netns: netns, Args: args, HasResult: command == "DEL"}
	}
	first, second := dratest.NetnsOf(sb), filepath.Join(r.Dir, "netns/s2")
	difftest.Equal(t, r.Calls(), []dratest.Call{of("ADD", "s1", first), of("DEL", "s1", first), of("ADD", "s2", second), of("DEL", "s2", second)})
}

func TestFailingPluginFailsPodAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := dratest.NewRig(t)
	agent := r.Start()
	r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""), dratest.Net("y", "net2", "refuse"), dratest.Net("z", "net3", "")))
	difftest.Says(t, agent.RunPodSandbox(t.Context(), r.Sandbox("s1", "pod")), "no address left")
	want := []string{"ADD s1 net1", "ADD s1 net2", "ADD s1 net3", "DEL s1 net1", "DEL s1 net2", "DEL s1 net3"}
	difftest.Equal(t, slices.Sorted(slices.Values(r.CallNames())), want)
	difftest.Eventually(t, "a status", func() bool { return len(r.LastReport().Devices) == 3 })
	for _, d := range r.LastReport().Devices {
		c := d.Conditions[0]
		if c.Type != "Ready" || c.Status != metav1.ConditionFalse || c.Reason != "NetworkInterfaceNotReady" || !strings.Contains(c.Message, "no address left") {
			t.Errorf("got %+v", c)
		}
	}
	difftest.Must(t, agent.Unprepare(t.Context(), "u1"))
	r.Stop()
	r.ExpectNothing()
}

func TestPrepareAgainReturnsNetworkMetadata(t *testing.T) {
	r := dratest.NewRig(t)
	agent := r.Start()
	claim := r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "info"))
	share := "share-u1x"
	want := []kubeletplugin.Device{{Requests: []string{"x"}, PoolName: "node1", DeviceName: "cni", ShareID: (*types.UID)(&share),
		CDIDeviceIDs: []string{dratest.Driver + "/claim=u1_x"}}}
	got, err := agent.Prepare(t.Context(), claim, 0)
	difftest.Must(t, err)
	difftest.Equal(t, got, want)
	difftest.Must(t, agent.RunPodSandbox(t.Context(), r.Sandbox("s1", "pod")))
	want[0].Metadata = &kubeletplugin.DeviceMetadata{
		Attributes:  map[string]resourceapi.DeviceAttribute{"mtu": {IntValue: new(int64(1450))}},
		NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.0.0.2/24"}, HardwareAddress: "02:00:00:00:00:01"},
	}
	difftest.Equal(t, r.Metadata, want)
	claim.Spec.Devices.Requests = nil // an accepted claim stays accepted
	for range 2 {
		got, err := agent.Prepare(t.Context(), claim, 0)
		difftest.Must(t, err)
		difftest.Equal(t, got, want)
		agent = r.Start()
	}
}

func TestHangingDELsDoNotDelayADDs(t *testing.T) {
	t.Parallel()
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		agent := r.Start()
		r.Plugins.SetHook(func(command, sandbox, _ string) error {
			if command == "DEL" && strings.HasPrefix(sandbox, "hung") {
				time.Sleep(network.PluginLimit)
				return errors.New("ended")
			}
			return nil
		})
		const hung = 34 // more than the lane has room for
		for n := range hung {
			pod := fmt.Sprint("hung", n)
			r.Prepare(r.ClaimOf("a", pod, pod, dratest.Net("x", "net1", "")))
			sb := r.RunSandbox(pod, pod)
			dratest.WaitIdle() // the DELs of others use up the budget, so RunPodSandbox may return before the ADD
			go r.EndPod(sb)
		}
		time.Sleep(10 * time.Second)
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")), r.ClaimOf("a", "u2", "late", dratest.Net("x", "net1", "")))
		began := time.Now()
		difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
		difftest.Must(t, r.RunPod(r.Sandbox("s2", "late")))
		difftest.Same(t, "the runtime waits", time.Since(began), time.Duration(0)) // the budget is used up
		dratest.WaitIdle()
		difftest.Same(t, "ADDs", r.Plugins.Calls("ADD s1")+r.Plugins.Calls("ADD s2"), 2)
		time.Sleep(20 * time.Minute)
		difftest.Equal(t, agent.Census().Phases["Deleting"]+agent.Census().Phases["Undeleted"], hung)
	})
}

// The CNI specification allows one operation at a time for a container; the rig reports two as a violation. The order is
// that of Prepare, also after a restart of the driver. A late network that takes long delays no other network, in whatever
// claim it is, nor does one whose ADD fails.
func TestNetworksOfPodAreAttachedInOrder(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		for _, failing := range []string{"", "net3", "net4"} {
			dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
				r.Start()
				r.Prepare(r.ClaimOf("z", "u1", "pod", dratest.Net("v", "net1", "late 30s"), dratest.Net("w", "net2", "50ms"), dratest.Net("x", "net3", "50ms")),
					r.ClaimOf("y", "u2", "pod", dratest.Net("v", "net4", "late 1s")), r.ClaimOf("x", "u3", "pod", dratest.Net("y", "net5", "50ms"), dratest.Net("z", "net6", "50ms")))
				if restarted {
					startSynchronized(r)
				}
				fails := failing
				r.Plugins.SetHook(func(command, _, ifName string) error {
					if command == "ADD" && ifName == fails && r.Plugins.Calls("ADD s1 net6") > 0 {
						fails = ""
					}
					if command == "ADD" && ifName == fails {
						return errors.New("no lease")
					}
					return nil
				})
				began := time.Now()
				sb := r.Sandbox("s1", "pod")
				err := r.RunPod(sb)
				if failing == "net3" {
					difftest.Says(t, err, "no lease")
					r.Unprepare("u2")
					r.Unprepare("u3")
					r.EndAndUnprepare(sb, "u1")
					return
				}
				difftest.Must(t, err)
				difftest.Equal(t, time.Since(began), 200*time.Millisecond)
				time.Sleep(5 * time.Minute)
				adds := slices.DeleteFunc(r.CallNames(), func(call string) bool { return !strings.HasPrefix(call, "ADD") })
				difftest.Equal(t, adds[:6], []string{"ADD s1 net2", "ADD s1 net3", "ADD s1 net5", "ADD s1 net6", "ADD s1 net1", "ADD s1 net4"})
				before := len(r.CallNames())
				r.EndPod(sb)
				dratest.WaitIdle()
				difftest.Equal(t, r.CallNames()[before:], []string{"DEL s1 net6", "DEL s1 net5", "DEL s1 net4", "DEL s1 net1", "DEL s1 net3", "DEL s1 net2"})
			})
		}
	}
}
