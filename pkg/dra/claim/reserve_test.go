package claim_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// A claim by name changes its pod, and the next pod has the same interface name by a claim of its own.
func TestInterfaceNameStaysUniqueWhenClaimChangesPod(t *testing.T) {
	for name, then := range map[string]func(r *dratest.Rig, shared *resourceapi.ResourceClaim){
		"at the start of a sandbox":    func(*dratest.Rig, *resourceapi.ResourceClaim) {},
		"in the sweep":                 func(*dratest.Rig, *resourceapi.ResourceClaim) { time.Sleep(330 * time.Second) }, // half a minute after the fifth
		"when the kubelet restarts":    func(r *dratest.Rig, shared *resourceapi.ResourceClaim) { r.Prepare(shared) },
		"after a restart of the agent": func(r *dratest.Rig, _ *resourceapi.ResourceClaim) { startSynchronized(r); dratest.WaitIdle() },
	} {
		t.Run(name, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			shared, own := r.ClaimOf("shared", "u1", "one", dratest.Net("x", "net1", "")), dratest.FromTemplate(r.ClaimOf("own", "u2", "two", dratest.Net("x", "net1", "")))
			readShared := r.Options.Read
			r.ReadClaims(shared, nil)
			r.Options.Read = func(ctx context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
				if ref.Name == "own" {
					return own, nil
				}
				return readShared(ctx, ref)
			}
			startSynchronized(r)
			r.Prepare(shared)
			r.PrepareFails(r.ClaimOf("b", "u3", "one", dratest.Net("x", "net1", "")), `request "x": claim ns/shared already uses ifName "net1"; `+
				"give each request a different ifName, by parameters in the claim that apply to this request only")
			first := r.RunSandbox("s1", "one")
			shared = reserveFor(r, shared, "two")
			r.ReadClaims(shared, nil)
			r.Prepare(own)
			r.EndPod(first)
			shared.Status.ReservedFor = shared.Status.ReservedFor[1:]
			r.ReadClaims(shared, nil)
			then(r, shared)
			second := r.Sandbox("s2", "two")
			difftest.Says(t, r.RunPod(second), `request "x": claim ns/own already uses ifName "net1"`)
			r.EndPod(second)
			r.Unprepare("u2")
			r.EndAndUnprepare(r.RunSandbox("s3", "two"), "u1")
		}))
	}
}

// containerd lists sandboxes until they are removed; before 2.3, without their namespaces once they have ended.
func TestListedSandboxThatHasEndedKeepsClaimFromNobody(t *testing.T) {
	for name, namespaces := range map[string][]*api.LinuxNamespace{"its namespace is known": {{Type: "network"}}, "unknown": nil} {
		t.Run(name, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			shared := reserveFor(r, r.ClaimOf("shared", "u1", "one", dratest.Net("x", "net1", "")), "two")
			r.ReadClaims(shared, nil)
			startSynchronized(r)
			r.Prepare(shared)
			first := r.RunSandbox("s1", "one")
			r.Stop()
			r.RemoveNetns(first)
			for _, n := range namespaces {
				n.Path = dratest.NetnsOf(first)
			}
			first.Linux.Namespaces = namespaces
			startSynchronized(r, first)
			r.EndAndUnprepare(r.RunSandbox("s2", "two"), "u1")
		}))
	}
}

// The runtime lists sandboxes in any order, and the kubelet keeps the former one for a while.
func TestListedSandboxThatHasEndedIsNotTheNewest(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		running, ended := r.Sandbox("s2", "pod"), &api.PodSandbox{Id: "s1", Name: "pod", Namespace: "ns", Uid: "uid-pod"} // as of containerd before 2.3
		running.Pid = 7
		r.ListSandboxes(running, ended)
		dratest.WaitIdle()
		difftest.Equal(t, r.Record("u1").Attachments[0].Sandbox, "s2")
		r.EndAndUnprepare(running, "u1")
	})
}

// containerd reports the end of a sandbox before it removes the namespace, and lists the sandbox until it is removed.
func TestSandboxThatHasEndedStaysSoWhenRuntimeConnectsAgain(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		startSynchronized(r)
		sb := r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		r.Plugins.SetHook(dratest.Fail("DEL", ""))
		difftest.Must(t, r.Agent.StopPodSandbox(t.Context(), sb))
		r.ListSandboxes(sb)
		r.Plugins.SetHook(nil)
		time.Sleep(5 * time.Minute)
		difftest.Equal(t, r.Record("u1").Attachments[0].Sandbox, "")
		r.EndAndUnprepare(sb, "u1")
	})
}

// NRI before 0.12.4 goes on with a sandbox if the connection breaks before the driver's error arrives. All its containers may
// wait for the gate, so that none comes to CreateContainer.
func TestFailedSandboxThatTheRuntimeKeepsIsAttached(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		startSynchronized(r)
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		r.Plugins.SetHook(dratest.Fail("ADD", ""))
		sb := r.Sandbox("s1", "pod")
		difftest.Says(t, r.RunPod(sb), dratest.ErrNoMaster.Error())
		r.Plugins.SetHook(nil)
		r.ListSandboxes(sb)
		time.Sleep(5 * time.Minute)
		difftest.Equal(t, r.Record("u1").Attachments[0].Sandbox, "s1")
		r.EndAndUnprepare(sb, "u1")
	})
}

// A pod that cannot have a shared claim keeps it from nobody.
func TestClaimIsPreparedForThePodThatCanHaveIt(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		shared := reserveFor(r, r.ClaimOf("shared", "u1", "wrong", dratest.Net("x", "net1", "")), "right")
		own := dratest.FromTemplate(r.ClaimOf("own", "u2", "wrong", dratest.Net("x", "net1", "")))
		r.Options.Read = func(_ context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
			return map[string]*resourceapi.ResourceClaim{"shared": shared, "own": own}[ref.Name], nil
		}
		startSynchronized(r)
		r.Prepare(own)
		alone := r.ClaimOf("shared", "u1", "wrong", dratest.Net("x", "net1", ""))
		r.PrepareFails(alone, `claim ns/own already uses ifName "net1"`)
		r.Prepare(shared)
		wrong := r.Sandbox("s1", "wrong")
		difftest.Says(t, r.RunPod(wrong), `claim ns/own already uses ifName "net1"`)
		r.EndPod(wrong)
		right := r.RunSandbox("s2", "right")
		r.Unprepare("u2")
		r.EndAndUnprepare(right, "u1")
	})
}

// reserveFor returns a copy of a claim that is reserved for more pods. Its resource version is lower, as after etcd was
// restored from a backup.
func reserveFor(r *dratest.Rig, claim *resourceapi.ResourceClaim, pods ...string) *resourceapi.ResourceClaim {
	claim = claim.DeepCopy()
	version, _ := strconv.Atoi(claim.ResourceVersion)
	claim.ResourceVersion = strconv.Itoa(cmp.Or(version, 1000) - 1)
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, r.ClaimOf("", "", pod).Status.ReservedFor...)
	}
	return claim
}

// startSynchronized starts an agent and lists all sandboxes.
func startSynchronized(r *dratest.Rig, sandboxes ...*api.PodSandbox) {
	r.T.Helper()
	r.Start()
	r.ListSandboxes(sandboxes...)
}

// expectRejected checks that a sandbox is rejected because another pod has the claim, and ends it.
func expectRejected(r *dratest.Rig, sb *api.PodSandbox, by string) {
	r.T.Helper()
	difftest.Says(r.T, r.RunPod(sb), "pod ns/"+sb.Name+": claim ns/", "is held by pod ns/"+by+",", "ResourceClaimTemplate", "strategy Recreate")
	r.EndPod(sb)
}

func TestClaimBelongsToOnePodUntilItsSandboxEnds(t *testing.T) {
	for _, of := range variants() {
		for _, pods := range [][2][]string{ // in status.reservedFor at Prepare, and later
			{{"one", "two"}, {"one", "two"}}, {{"one"}, {"one", "two"}}, {{"one"}, {"two"}},
		} {
			dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
				r.UseJournal("mlx5-switchdev", "")
				claim := makeExclusive(dratest.DeviceClaim("u1", dratest.VF3, of.parameters))
				claim.Status.ReservedFor = nil
				now := reserveFor(r, claim, pods[0]...)
				r.ReadClaims(now, nil)
				startSynchronized(r)
				r.Prepare(now)
				first := sandboxOf(r, of, "s1", "one")
				difftest.Must(t, r.RunPod(first))
				now = reserveFor(r, claim, pods[1]...)
				r.ReadClaims(now, nil)
				difftest.Must(t, r.CreateContainer(first, of.gate))
				adds := r.Plugins.Calls("")
				expectRejected(r, sandboxOf(r, of, "s2", "two"), "one")
				r.Prepare(now) // the kubelet restarts
				expectRejected(r, sandboxOf(r, of, "s3", "two"), "one")
				difftest.Must(t, r.CreateContainer(first, of.gate))
				r.ExpectCalls("", adds)
				r.EndPod(first)
				second := sandboxOf(r, of, "s4", "two")
				difftest.Must(t, r.RunPod(second))
				difftest.Must(t, r.CreateContainer(second, of.gate))
				r.ReadClaims(reserveFor(r, claim, "two", "one"), nil)
				expectRejected(r, sandboxOf(r, of, "s5", "one"), "two")
				startSynchronized(r, second)
				dratest.WaitIdle()
				difftest.Must(t, r.CreateContainer(second, of.gate))
				expectRejected(r, sandboxOf(r, of, "s6", "one"), "two")
				r.ExpectHolders("pci-0000:03:00.5", "claim ns/claim-u1")
				r.EndAndUnprepare(second, "u1")
			})
		}
	}
}

// Multus attaches before the runtime reports the sandbox, so the lease must name the next pod early.
func TestLeaseOfClaimWithoutNetworkFollowsItsPod(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		j := r.UseJournal("mlx5-switchdev", "")
		claim := dratest.DeviceClaim("u1", dratest.VF3, "")
		r.ReadClaims(claim, nil)
		startSynchronized(r)
		r.Prepare(claim)
		sb := r.RunSandbox("s1", "pod")
		now := reserveFor(r, claim, "next")
		r.ReadClaims(now, nil)
		r.EndPod(sb)
		now.Status.ReservedFor = now.Status.ReservedFor[1:]
		r.ReadClaims(now, nil)
		time.Sleep(2 * time.Minute)
		lease, err := j.Claim("u1")
		difftest.Must(t, err)
		difftest.Equal(t, lease.Pods, []string{"uid-next"})
	})
}

// A sandbox costs at most one request, and none if no claim that its pod may use is prepared. Its own claims are
// known, and claims from templates belong to other pods. Only a pod that takes over a claim costs a second request.
func TestSandboxCostsOneReadAtMost(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		client := fake.NewClientset()
		r.Options.Read, r.Options.ClaimsOf = dra.ReadClaim(client), dra.ClaimsOf(client)
		startSynchronized(r)
		prepare := func(c *resourceapi.ResourceClaim) {
			difftest.Must(t, client.Tracker().Add(c))
			r.Prepare(c)
		}
		run := func(id, pod string, requests ...string) {
			t.Helper()
			client.ClearActions()
			r.RunSandbox(id, pod)
			var got []string
			for _, a := range client.Actions() {
				got = append(got, a.GetVerb()+" "+a.GetResource().Resource)
			}
			difftest.Same(t, "requests for pod "+pod, got, requests)
		}
		prepare(dratest.FromTemplate(r.ClaimOf("made", "u1", "one", dratest.Net("x", "net1", ""))))
		elsewhere := r.ClaimOf("elsewhere", "u2", "two", dratest.Net("x", "net1", ""))
		elsewhere.Namespace = "other"
		prepare(elsewhere)
		run("s1", "before")
		for n := range 100 {
			prepare(r.ClaimOf(fmt.Sprint("named", n), fmt.Sprint("v", n), fmt.Sprint("holder", n), dratest.Net("x", "net1", "")))
		}
		run("s2", "holder0", "get pods")
		run("s3", "without", "get pods")
		difftest.Must(t, client.Tracker().Add(podWith("next", "other", "named0")))
		expectRejected(r, r.Sandbox("s4", "next"), "holder0")
		r.EndPod(r.Sandbox("s2", "holder0"))
		run("s5", "next", "get pods", "get resourceclaims")
		run("s6", "other", "get pods") // created again, with the name of another pod
	})
}

// podWith returns a pod that uses claims by name.
func podWith(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	for _, c := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c, ResourceClaimName: &c})
	}
	return pod
}

// The runtime does not wait for a slow API server, so the author of the pod learns from an Event why a container waits. A
// container that does not name the claim waits too, until the pod has it.
func TestLateRefusalOfSharedClaimIsReported(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		shared := r.ClaimOf("a", "u1", "one", dratest.Net("x", "net1", ""))
		r.ReadClaims(shared, nil)
		r.Options.ClaimsOf = func(ctx context.Context, pod state.Pod) ([]string, error) {
			if pod.Name == "unanswered" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			difftest.Same(t, "the pod that is read", pod.Name, "two")
			time.Sleep(5 * time.Second)
			return []string{"a"}, nil
		}
		startSynchronized(r)
		r.Prepare(shared)
		first := r.RunSandbox("s1", "one")
		second := r.RunSandbox("s2", "two")
		difftest.Equal(t, len(r.Notices()), 0)
		time.Sleep(5 * time.Second)
		difftest.Equal(t, r.Notices(), []string{claim.NoticeFailed})
		difftest.Says(t, r.CreateContainer(second, "u1_x"), "is held by pod ns/one")
		difftest.Says(t, createContainer(r, second), "pod ns/two: claim ns/a is held by pod ns/one")
		ended := r.Sandbox("s3", "ended") // some runtimes list it until it is removed
		r.RemoveNetns(ended)
		startSynchronized(r, r.Sandbox("s0", "unanswered"), first, second, ended)
		time.Sleep(6 * time.Second)
		difftest.Says(t, createContainer(r, second), "pod ns/two: claim ns/a is held by pod ns/one")
		difftest.Must(t, createContainer(r, first))
		r.ReadClaims(reserveFor(r, shared, "two"), nil)
		r.EndPod(first)
		time.Sleep(2 * time.Minute) // until the second pod has the claim
		difftest.Must(t, createContainer(r, second), r.CreateContainer(second, "u1_x"))
		r.EndAndUnprepare(second, "u1")
	})
}

// A claim that was deleted, and created again for another pod, has the name of one whose DEL is still to come.
func TestFormerClaimOfTheSameNameKeepsNobodyOut(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Options.ClaimsOf = func(context.Context, state.Pod) ([]string, error) {
			time.Sleep(5 * time.Second)
			return []string{"a"}, nil
		}
		startSynchronized(r)
		r.Prepare(r.ClaimOf("a", "u1", "one", dratest.Net("x", "net1", "")))
		first := r.RunSandbox("s1", "one")
		r.Prepare(r.ClaimOf("a", "u2", "two", dratest.Net("x", "net1", "")))
		second := r.RunSandbox("s2", "two")
		time.Sleep(time.Minute)
		difftest.Equal(t, len(r.Notices()), 0)
		difftest.Must(t, createContainer(r, second))
		r.EndPod(first)
		r.Unprepare("u1")
		difftest.Must(t, createContainer(r, second))
		r.EndAndUnprepare(second, "u2")
	})
}

// Pods without claims start as usual. The gate keeps other pods away from the network.
func TestSandboxStartsWithoutAPIServer(t *testing.T) {
	for name, away := range map[string]func(context.Context) error{
		"no answer": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"refused":   func(context.Context) error { return errors.New("connection refused") },
	} {
		inBubbles(t, func(t *testing.T, r *dratest.Rig, of variant) {
			claim := reserveFor(r, dratest.DeviceClaim("u1", dratest.VF3, of.parameters), "one")
			claim.Status.ReservedFor = claim.Status.ReservedFor[1:]
			now := reserveFor(r, claim, "two")
			var isBack atomic.Bool
			r.Options.Read = func(ctx context.Context, _ kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
				if !isBack.Load() {
					return nil, away(ctx)
				}
				return now, nil
			}
			var log bytes.Buffer
			r.Options.Log = slog.New(slog.NewTextHandler(&log, nil))
			startSynchronized(r)
			r.Prepare(claim)
			first, second := sandboxOf(r, of, "s1", "one"), sandboxOf(r, of, "s2", "two")
			difftest.Must(t, r.RunPod(first))
			began := time.Now()
			difftest.Must(t, r.RunPod(second))
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s: it took %v", name, took)
			}
			difftest.Says(t, r.CreateContainer(second, of.gate), "is held by pod ns/one")
			isBack.Store(true)
			time.Sleep(5 * time.Minute)
			dratest.WaitIdle()
			difftest.Same(t, "warnings", strings.Count(log.String(), "cannot ask the API server which claims a pod uses"), 1)
			difftest.Says(t, r.CreateContainer(second, of.gate), "is held by pod ns/one")
			difftest.Must(t, r.CreateContainer(first, of.gate))
			r.EndPod(first)
			time.Sleep(2 * time.Minute) // until the second pod has the claim
			difftest.Must(t, r.CreateContainer(second, of.gate))
			if r.CreateContainer(first, of.gate) == nil {
				t.Errorf("%s: a container of the former pod starts", name)
			}
			r.EndAndUnprepare(second, "u1")
		})
	}
}

// The API server may answer which claims a pod uses, and nothing more.
func TestSandboxStartsIfItsClaimCannotBeRead(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		claim := r.ClaimOf("a", "u1", "one", dratest.Net("x", "net1", ""))
		r.ReadClaims(claim, nil)
		r.Options.ClaimsOf = func(context.Context, state.Pod) ([]string, error) { return []string{"a"}, nil }
		startSynchronized(r)
		r.Prepare(claim)
		r.ReadClaims(nil, errors.New("no answer"))
		second := r.RunSandbox("s2", "two")
		difftest.Says(t, r.CreateContainer(second, "u1_x"), "unresolvable CDI device")
		r.EndPod(second)
	})
}

// A claim keeps its UID when it is deallocated, and may keep its pod.
func TestReallocatedClaimIsAttachedWithNewDevice(t *testing.T) {
	inBubbles(t, func(t *testing.T, r *dratest.Rig, kind variant) {
		r.ReadClaims(nil, errors.New("no answer"))
		r.Start()
		of := func(device string) *resourceapi.ResourceClaim {
			return dratest.DeviceClaim("u1", device, kind.parameters)
		}
		r.Prepare(of(dratest.VF0))
		first := sandboxOf(r, kind, "s1", "pod")
		difftest.Must(t, r.RunPod(first))
		r.EndPod(first)
		r.PrepareFails(of(dratest.VF2), "claim ns/claim-u1", "API server", "no answer")
		r.ReadClaims(of(dratest.VF2), nil)
		r.Prepare(of(dratest.VF2))
		difftest.Must(t, r.RunPod(sandboxOf(r, kind, "s2", "pod")))
		r.ExpectHolders("pci-0000:03:00.2")
		r.ExpectHolders("pci-0000:03:00.4", "claim ns/claim-u1")
		if at := r.Record("u1").Attachments[0]; at.Device != dratest.VF2 || !at.Bare() && (at.Phase != state.Added || !strings.Contains(string(at.List), `"0000:03:00.4"`)) {
			t.Errorf("%s, %s", at.Phase, at.List)
		}
		r.PrepareFails(of(dratest.VF0), "the kubelet prepares it again")
		difftest.Same(t, "device after an old allocation", r.Record("u1").Attachments[0].Device, dratest.VF2)
		r.PrepareFails(of("pci-0000-09-00-0"), "the kubelet prepares it again")
		// If the new allocation is rejected, the old device must not be attached.
		r.ReadClaims(of("pci-0000-09-00-0"), nil)
		r.PrepareFails(of("pci-0000-09-00-0"), "this node has no device of that name")
		r.ExpectNothing()
	})
}

// The kubelet considers the claim prepared, because a pod that was deleted by force still has it.
func TestPodIsRejectedIfClaimWasPreparedWithOtherDevices(t *testing.T) {
	inBubbles(t, func(t *testing.T, r *dratest.Rig, of variant) {
		now := dratest.DeviceClaim("u1", dratest.VF0, of.parameters)
		r.ReadClaims(now, nil)
		startSynchronized(r)
		r.Prepare(now)
		sb := sandboxOf(r, of, "s1", "pod")
		difftest.Must(t, r.RunPod(sb))
		now = dratest.DeviceClaim("u1", dratest.VF2, of.parameters)
		now.Status.ReservedFor = r.ClaimOf("", "", "next").Status.ReservedFor
		r.ReadClaims(now, nil)
		expectRejected(r, sandboxOf(r, of, "s2", "next"), "pod")
		r.EndPod(sb)
		next := sandboxOf(r, of, "s3", "next")
		difftest.Says(t, r.RunPod(next), "claim ns/claim-u1 was allocated again", "delete this pod")
		r.EndAndUnprepare(next, "u1")
	})
}

// A claim that was read before Prepare or Unprepare may be out of date afterwards.
func TestSlowClaimReadDoesNotUndoNewerPrepare(t *testing.T) {
	for name, test := range map[string]struct {
		device  string // device at the next Prepare; "" = Unprepare
		refused string // part of the error that the sandbox gets while the read of the claim runs
		left    []string
	}{
		"prepared again": {dratest.VF0, "is held by pod ns/next", []string{"u1.json"}},
		"reallocated":    {dratest.VF2, "was unprepared during this call", []string{"u1.json"}},
		"unprepared":     {"", "was unprepared during this call", nil},
	} {
		for _, sweep := range []bool{true, false} {
			inBubbles(t, func(t *testing.T, r *dratest.Rig, of variant) {
				claim, anew := dratest.DeviceClaim("u1", dratest.VF0, of.parameters), dratest.DeviceClaim("u1", test.device, of.parameters)
				anew.Status.ReservedFor = r.ClaimOf("", "", "next").Status.ReservedFor
				asked, goOn := make(chan struct{}), make(chan struct{})
				var slow atomic.Bool
				r.Options.ClaimsOf = func(context.Context, state.Pod) ([]string, error) { return []string{claim.Name}, nil }
				r.ReadClaims(reserveFor(r, claim, "two"), nil)
				read := r.Options.Read
				r.Options.Read = func(ctx context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
					got, err := read(ctx, ref)
					if slow.CompareAndSwap(true, false) {
						asked <- struct{}{}
						<-goOn
					}
					return got, err
				}
				startSynchronized(r)
				r.Prepare(claim)
				dratest.WaitIdle()
				slow.Store(true)
				err := make(chan error, 1)
				if !sweep {
					go func() { err <- r.RunPod(sandboxOf(r, of, "s2", "two")) }()
				}
				<-asked
				if test.device == "" {
					r.Unprepare("u1")
				} else {
					r.ReadClaims(anew, nil)
					r.Prepare(anew)
				}
				close(goOn)
				if !sweep {
					difftest.Says(t, <-err, test.refused)
				}
				dratest.WaitIdle()
				difftest.Equal(t, r.Files("state"), test.left)
				if test.left != nil && (r.Record("u1").Attachments[0].Device != test.device || r.Record("u1").Pod.Name != "next") {
					t.Errorf("%s: %+v", name, r.Record("u1"))
				}
			})
		}
	}
}

// The record of an unprepared claim stays until its DEL succeeds. No pod may be rejected because of it.
func TestUnpreparedClaimIsNotReadForNewPods(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Options.Read = func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
			t.Error("the claim is read")
			return nil, nil
		}
		r.Start()
		claim := r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""))
		sb := r.AttachPod(claim)
		r.Plugins.SetHook(dratest.Fail("DEL", ""))
		r.EndPod(sb)
		time.Sleep(10 * time.Minute)
		difftest.Must(t, r.Agent.Unprepare(t.Context(), "u1"))
		r.ExpectPhase("Undeleted", 1)
		difftest.Must(t, r.RunPod(r.Sandbox("s2", "other")))
	})
}
