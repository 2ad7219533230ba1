package dra_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/test/difftest"
)

// The driver watches its own slices. A claim from a template costs one GET and one PATCH. The driver sends no
// requests while nothing happens on the node.
func TestEachClaimNeedsOneReadAndOnePatch(t *testing.T) {
	t.Parallel()
	const claims = 10
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	client := apiServer(nil)
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &resourceapi.ResourceClaim{}, nil
	})
	var looks atomic.Int64
	o := &r.options
	o.Exec, o.Devices.Inventory = p, n.inventory()
	o.Devices.Inventory.Times.Poll = 10 * time.Millisecond
	o.Status = func(ctx context.Context, report status.Report) error { return status.Apply(ctx, client, report) }
	o.Read, o.Notify = dra.ReadClaim(client), dra.PostNotices(client, driverName, "node1", o.Log)
	o.Netns = func(path string) error { looks.Add(1); return fileIsNetns(path) }
	r.startKubelet(client, 0)
	asked := func() map[string]int {
		requests := map[string]int{}
		for _, a := range client.Actions() {
			requests[a.GetVerb()+" "+a.GetResource().Resource]++
		}
		return requests
	}
	r.eventually("the slices are published", func() bool { return asked()["create resourceslices"] == 2 })
	for i := range claims {
		name := fmt.Sprint("pod", i)
		claim := r.claimOf(name, name, name, netRequest{"x", "net1", ""})
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID("uid-" + name), Controller: new(true)}}
		must(t, client.Tracker().Add(claim))
		r.prepareByKubelet(claim)
		must(t, r.runPod(r.sandbox(name, name)))
	}
	r.eventually("each status is sent", func() bool { return asked()["patch resourceclaims"] >= claims })
	before := looks.Load()
	r.eventually("the worker has checked each claim many times", func() bool { return looks.Load() > before+20*claims })
	expected := map[string]int{
		"get nodes": 1, "list resourceslices": 1, "watch resourceslices": 1, "create resourceslices": 2,
		"get resourceclaims": claims, "patch resourceclaims": claims,
	}
	difftest.Same(t, "requests", asked(), expected)
}
