package dra_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
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
	o.Read, o.List, o.Notify = dra.ReadClaim(client), dra.ListClaims(client), dra.PostNotices(client, driverName, "node1", o.Log)
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

// An unused permission helps only an attacker. A missing one shows in a cluster.
func TestRoleAllowsExactlyTheRequestsOfTheDriver(t *testing.T) {
	t.Parallel()
	made := ownClaim("u1", vf0, network(`{"type":"sriov"}`))
	client := apiServer(nil, made)
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &resourceapi.ResourceClaim{}, nil
	})
	r, n := newRig(t), newNode(t, "mlx5-switchdev")
	log := r.options.Log
	r.options.Status = func(ctx context.Context, report status.Report) error { return status.Apply(ctx, client, report) }
	r.options.Read, r.options.List = dra.ReadClaim(client), dra.ListClaims(client)
	r.startOffering(client, n, newPlugins())
	waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf2, vf3)
	n.change(func() { n.remove("enp3s0f0v2") }) // updates a slice
	waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf3)
	_, err := r.options.List(t.Context(), "ns")
	must(t, err)
	_, err = dra.ReadLabels(client, "node1")(t.Context())
	must(t, err)
	dra.PostNotices(client, driverName, "node1", log)(claim.Notice{Pod: state.Pod{Namespace: "ns", Name: "pod", UID: "uid-pod"}, Reason: claim.NoticeFailed})
	r.prepareByKubelet(made)
	must(t, r.runPod(r.sandbox("s1", "pod")))
	asked := func() map[string]bool {
		requests := map[string]bool{}
		for _, a := range client.Actions() {
			requests[a.GetVerb()+" "+strings.TrimSuffix(a.GetResource().Resource+"/"+a.GetSubresource(), "/")] = true
		}
		return requests
	}
	r.eventually("the status and the Event are sent", func() bool { return asked()["patch resourceclaims/status"] && asked()["create events"] })
	r.stop()
	r.agent, r.withdraw = nil, true
	r.startKubelet(client, 0)
	r.eventually("the slices are removed", func() bool { return asked()["delete resourceslices"] })
	allowed := map[string]bool{}
	for _, document := range strings.Split(difftest.Read(t, "../../deploy/cni-dra-driver/rbac.yaml"), "\n---\n") {
		var role rbacv1.ClusterRole
		must(t, yaml.Unmarshal([]byte(document), &role))
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				allowed[verb+" "+rule.Resources[0]] = true
			}
		}
	}
	delete(allowed, "associated-node:patch resourceclaims/driver") // the API server checks it when the driver patches a status
	difftest.Same(t, "permissions", allowed, asked())
}
