package dra_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/test/difftest"
)

// reserveFor returns a copy of a claim that is reserved for more pods.
func (r *rig) reserveFor(claim *resourceapi.ResourceClaim, pods ...string) *resourceapi.ResourceClaim {
	claim = claim.DeepCopy()
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, r.claimOf("", "", pod).Status.ReservedFor...)
	}
	return claim
}

// readClaims makes reads of claims from the API server call read.
func (r *rig) readClaims(read func() (*resourceapi.ResourceClaim, error)) {
	r.options.Read = func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
		return read()
	}
}

// startSynchronized starts an agent and lists all sandboxes.
func (r *rig) startSynchronized(sandboxes ...*api.PodSandbox) {
	r.t.Helper()
	r.start()
	r.listSandboxes(sandboxes...)
}

// expectRejected checks that a sandbox is rejected because another pod has the claim, and ends it.
func (r *rig) expectRejected(sb *api.PodSandbox, by string) {
	r.t.Helper()
	says(r.t, r.runPod(sb), "pod ns/"+sb.Name+": claim ns/", "is held by pod ns/"+by+",", "ResourceClaimTemplate", "strategy Recreate")
	r.endPod(sb)
}

func TestClaimBelongsToOnePodUntilItsSandboxEnds(t *testing.T) {
	for _, of := range variants() {
		for _, pods := range [][2][]string{ // in status.reservedFor at Prepare, and later
			{{"one", "two"}, {"one", "two"}}, {{"one"}, {"one", "two"}}, {{"one"}, {"two"}},
		} {
			inBubble(t, func(t *testing.T, r *rig, p *plugins) {
				r.useJournal("mlx5-switchdev", "")
				claim := makeExclusive(ownClaim("u1", vf3, of.parameters))
				claim.Status.ReservedFor = nil
				now := r.reserveFor(claim, pods[0]...)
				r.readClaims(func() (*resourceapi.ResourceClaim, error) { return now, nil })
				r.startSynchronized()
				r.prepare(now)
				first := r.sandboxOf(of, "s1", "one")
				must(t, r.runPod(first))
				now = r.reserveFor(claim, pods[1]...)
				must(t, r.createContainer(first, of.gate))
				adds := p.calls("")
				r.expectRejected(r.sandboxOf(of, "s2", "two"), "one")
				r.prepare(now) // the kubelet restarts
				r.expectRejected(r.sandboxOf(of, "s3", "two"), "one")
				must(t, r.createContainer(first, of.gate))
				r.expectCalls("", adds)
				r.endPod(first)
				second := r.sandboxOf(of, "s4", "two")
				must(t, r.runPod(second))
				must(t, r.createContainer(second, of.gate))
				now = r.reserveFor(claim, "two", "one")
				r.expectRejected(r.sandboxOf(of, "s5", "one"), "two")
				r.startSynchronized(second)
				waitIdle()
				must(t, r.createContainer(second, of.gate))
				r.expectRejected(r.sandboxOf(of, "s6", "one"), "two")
				r.expectHolders("pci-0000:03:00.5", "claim ns/claim-u1")
				r.endAndUnprepare(second, "u1")
			})
		}
	}
}

// Multus attaches before the runtime reports the sandbox, so the lease must name the next pod early.
func TestLeaseOfClaimWithoutNetworkFollowsItsPod(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		j := r.useJournal("mlx5-switchdev", "")
		claim := ownClaim("u1", vf3, "")
		now := claim
		r.readClaims(func() (*resourceapi.ResourceClaim, error) { return now, nil })
		r.startSynchronized()
		r.prepare(claim)
		sb := r.runSandbox("s1", "pod")
		now = r.reserveFor(claim, "next")
		r.endPod(sb)
		now.Status.ReservedFor = now.Status.ReservedFor[1:]
		time.Sleep(2 * time.Minute)
		lease, err := j.Claim("u1")
		must(t, err)
		difftest.Equal(t, lease.Pods, []string{"uid-next"})
	})
}

// A sandbox costs at most one request, and none if no claim that its pod may use is prepared. Its own claims are
// known, and claims from templates belong to other pods. If the request fails, one line is logged.
func TestSandboxCostsOneReadAtMost(t *testing.T) {
	for named, verb := range map[int]string{0: "", 1: "get", 100: "list"} {
		for _, away := range []bool{false, true} {
			inBubble(t, func(t *testing.T, r *rig, p *plugins) {
				const pods = 10
				var log bytes.Buffer
				r.options.Log = slog.New(slog.NewTextHandler(&log, nil))
				client := fake.NewClientset()
				if away {
					client.PrependReactor("*", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
				}
				r.options.Read = dra.ReadClaim(client)
				r.options.List = dra.ListClaims(client)
				r.startSynchronized()
				made := fromTemplate(r.claimOf("made", "u1", "one", netRequest{"x", "net1", ""}))
				elsewhere := r.claimOf("elsewhere", "u2", "two", netRequest{"x", "net1", ""})
				elsewhere.Namespace = "other"
				all := []*resourceapi.ResourceClaim{made, elsewhere}
				for n := range named {
					all = append(all, r.claimOf(fmt.Sprint("named", n), fmt.Sprint("v", n), fmt.Sprint("holder", n), netRequest{"x", "net1", ""}))
				}
				for _, c := range all {
					must(t, client.Tracker().Add(c))
					r.prepare(c)
				}
				holder := r.runSandbox("s0", "holder0")
				client.ClearActions()
				log.Reset()
				for n := range pods {
					r.runSandbox(fmt.Sprint("s", n+1), fmt.Sprint("without", n))
				}
				requests := map[string]int{}
				for _, a := range client.Actions() {
					requests[a.GetVerb()]++
				}
				want, lines := map[string]int{}, 0
				if verb != "" {
					want[verb] = pods
				}
				if verb != "" && away {
					lines = pods
				}
				difftest.Same(t, fmt.Sprint(named, away), requests, want)
				difftest.Same(t, log.String(), strings.Count(log.String(), "\n"), lines)
				if named > 0 && !away {
					must(t, client.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), r.reserveFor(all[2], "next"), "ns"))
					r.expectRejected(r.sandbox("s20", "next"), "holder0")
				}
				r.endPod(holder)
			})
		}
	}
}

// Pods without claims start as usual. The gate keeps other pods away from the network.
func TestSandboxStartsWithoutAPIServer(t *testing.T) {
	for name, away := range map[string]func(context.Context) error{
		"no answer": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"refused":   func(context.Context) error { return errors.New("connection refused") },
	} {
		inBubbles(t, func(t *testing.T, r *rig, _ *plugins, of variant) {
			claim := r.reserveFor(ownClaim("u1", vf3, of.parameters), "one")
			claim.Status.ReservedFor = claim.Status.ReservedFor[1:]
			now, isAway := r.reserveFor(claim, "two"), true
			r.options.Read = func(ctx context.Context, _ kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
				if isAway {
					return nil, away(ctx)
				}
				return now, nil
			}
			r.startSynchronized()
			r.prepare(claim)
			first, second := r.sandboxOf(of, "s1", "one"), r.sandboxOf(of, "s2", "two")
			must(t, r.runPod(first))
			began := time.Now()
			must(t, r.runPod(second))
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s: it took %v", name, took)
			}
			says(t, r.createContainer(second, of.gate), "is held by pod ns/one")
			isAway = false
			time.Sleep(5 * time.Minute)
			says(t, r.createContainer(second, of.gate), "is held by pod ns/one")
			must(t, r.createContainer(first, of.gate))
			r.endPod(first)
			if r.createContainer(second, of.gate) == nil {
				t.Errorf("%s: a container starts before its pod has the claim", name)
			}
			time.Sleep(2 * time.Minute)
			must(t, r.createContainer(second, of.gate))
			if r.createContainer(first, of.gate) == nil {
				t.Errorf("%s: a container of the former pod starts", name)
			}
			r.endAndUnprepare(second, "u1")
		})
	}
}

// A claim keeps its UID when it is deallocated, and may keep its pod.
func TestReallocatedClaimIsAttachedWithNewDevice(t *testing.T) {
	inBubbles(t, func(t *testing.T, r *rig, _ *plugins, kind variant) {
		r.start()
		of := func(device, version string) *resourceapi.ResourceClaim {
			claim := ownClaim("u1", device, kind.parameters)
			claim.ResourceVersion = version
			return claim
		}
		r.prepare(of(vf0, "8"))
		first := r.sandboxOf(kind, "s1", "pod")
		must(t, r.runPod(first))
		r.endPod(first)
		r.prepare(of(vf2, "10"))
		must(t, r.runPod(r.sandboxOf(kind, "s2", "pod")))
		r.expectHolders("pci-0000:03:00.2")
		r.expectHolders("pci-0000:03:00.4", "claim ns/claim-u1")
		if at := r.attachment("u1"); at.Device != vf2 || !at.Bare() && (at.Phase != state.Added || !strings.Contains(string(at.List), `"0000:03:00.4"`)) {
			t.Errorf("%s, %s", at.Phase, at.List)
		}
		r.prepareFails(of(vf0, "9"), "the kubelet prepares it again")
		if at := r.attachment("u1"); at.Device != vf2 {
			t.Errorf("an old allocation: %s", at.Device)
		}
		// If the new allocation is rejected, the old device must not be attached.
		r.prepareFails(of("pci-0000-09-00-0", "11"), "this node has no device of that name")
		r.expectNothing()
	})
}

// The kubelet considers the claim prepared, because a pod that was deleted by force still has it.
func TestPodIsRejectedIfClaimWasPreparedWithOtherDevices(t *testing.T) {
	inBubbles(t, func(t *testing.T, r *rig, _ *plugins, of variant) {
		now := ownClaim("u1", vf0, of.parameters)
		r.readClaims(func() (*resourceapi.ResourceClaim, error) { return now, nil })
		r.startSynchronized()
		r.prepare(now)
		sb := r.sandboxOf(of, "s1", "pod")
		must(t, r.runPod(sb))
		now = ownClaim("u1", vf2, of.parameters)
		now.Status.ReservedFor = r.claimOf("", "", "next").Status.ReservedFor
		says(t, r.runPod(r.sandboxOf(of, "s2", "next")), "claim ns/claim-u1 was allocated again", "delete this pod")
		r.endAndUnprepare(sb, "u1")
	})
}

// A claim that was read before Prepare or Unprepare may be out of date afterwards.
func TestSlowClaimReadDoesNotUndoNewerPrepare(t *testing.T) {
	for name, test := range map[string]struct {
		device  string // device at the next Prepare; "" = Unprepare
		refused string // part of the error that the sandbox gets while the read of the claim runs
		left    []string
	}{
		"prepared again": {vf0, "is held by pod ns/next", []string{"u1.json"}},
		"reallocated":    {vf2, "was unprepared during this call", []string{"u1.json"}},
		"unprepared":     {"", "was unprepared during this call", nil},
	} {
		for _, sweep := range []bool{true, false} {
			inBubbles(t, func(t *testing.T, r *rig, _ *plugins, of variant) {
				claim, anew := ownClaim("u1", vf0, of.parameters), ownClaim("u1", test.device, of.parameters)
				claim.ResourceVersion, anew.ResourceVersion = "9", "10"
				anew.Status.ReservedFor = r.claimOf("", "", "next").Status.ReservedFor
				slow, asked, goOn := false, make(chan struct{}), make(chan struct{})
				r.options.Read = func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
					if slow {
						asked <- struct{}{}
						<-goOn
					}
					return r.reserveFor(claim, "two"), nil
				}
				r.startSynchronized()
				r.prepare(claim)
				waitIdle()
				slow = true
				err := make(chan error, 1)
				if !sweep {
					go func() { err <- r.runPod(r.sandboxOf(of, "s2", "two")) }()
				}
				<-asked
				if test.device == "" {
					r.unprepare("u1")
				} else {
					r.prepare(anew)
				}
				close(goOn)
				if !sweep {
					says(t, <-err, test.refused)
				}
				waitIdle()
				difftest.Equal(t, r.files("state"), test.left)
				if test.left != nil && (r.attachment("u1").Device != test.device || r.record("u1").Pod.Name != "next") {
					t.Errorf("%s: %+v", name, r.record("u1"))
				}
			})
		}
	}
}

// The record of an unprepared claim stays until its DEL succeeds. No pod may be rejected because of it.
func TestUnpreparedClaimIsNotReadForNewPods(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		reads := 0
		r.readClaims(func() (*resourceapi.ResourceClaim, error) { reads++; return nil, nil })
		r.start()
		claim := r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""})
		sb := r.attachPod(claim)
		p.setHook(failDEL(""))
		r.endPod(sb)
		time.Sleep(10 * time.Minute)
		must(t, r.agent.Unprepare(t.Context(), "u1"))
		r.expectPhase("Undeleted", 1)
		must(t, r.runPod(r.sandbox("s2", "other")))
		difftest.Equal(t, reads, 0)
	})
}
