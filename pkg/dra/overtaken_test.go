package dra_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/inventory"
)

// The kubelet gives up on a call, and unprepares; the call has not come to its end yet.
func TestAPrepareThatUnprepareOvertakesLeavesNothing(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, _ *plugins) {
		n := newNode(t, "mlx5-switchdev")
		looks, goOn := make(chan struct{}), make(chan struct{})
		r.options.Inventory = n.inventory()
		r.options.Inventory.Host = func() (inventory.Host, error) {
			close(looks)
			<-goOn
			return n.host()
		}
		agent := r.start()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := agent.Prepare(ctx, ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
			ended <- err
		}()
		<-looks
		cancel()
		must(t, agent.Unprepare(t.Context(), "u1"))
		close(goOn)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		quiet()
		r.expectNothing()
	})
}

// The kubelet asks for a claim again while the agent forgets it, with a DEL that was given up.
func TestAPrepareThatMeetsTheEndOfUnprepareIsOnRecordOrFails(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		claim := r.claimOf("a", "u1", "pod", want{"x", "net1", ""})
		ended := make(chan error, 1)
		meet := sync.OnceFunc(func() {
			go func() {
				_, err := r.agent.Prepare(t.Context(), claim)
				ended <- err
			}()
			time.Sleep(time.Millisecond) // in which it is admitted
		})
		r.step = func(name string) {
			if name == "forgotten" {
				meet()
			}
		}
		r.start()
		p.set(always)
		r.prepare(claim)
		sb := r.sandbox("s1", "pod")
		_ = r.runPod(sb)
		r.endPod(sb)
		r.unprepared("u1")
		err := <-ended
		quiet()
		if err == nil && len(r.record("u1").Attachments) != 1 {
			t.Error("it is prepared, and not on record")
		}
		r.prepare(claim)
	})
}

// A kubelet that has lost its memory unprepares nothing.
func TestTheRecordOfAClaimThatIsGoneIsCollected(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, _ *plugins) {
		there := map[types.UID]bool{"u1": true, "u2": true}
		r.options.Gone = func(_ context.Context, c kubeletplugin.NamespacedObject) (bool, error) { return !there[c.UID], nil }
		agent := r.start()
		_, err := agent.Synchronize(t.Context(), nil, nil)
		must(t, err)
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}), r.claimOf("b", "u2", "other", want{"x", "net1", ""}))
		sb := r.sandbox("s1", "pod")
		must(t, r.runPod(sb))
		delete(there, "u1")
		time.Sleep(time.Hour)
		if n := agent.Census().Phases["Added"]; n != 1 {
			t.Errorf("its pod runs: %v", agent.Census())
		}
		r.endPod(sb)
		time.Sleep(2 * time.Hour)
		if got := r.files("state"); len(got) != 1 || got[0] != "u2.json" {
			t.Errorf("got %q", got)
		}
	})
}
