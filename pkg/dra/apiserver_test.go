package dra_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/test/difftest"
)

// Names have up to 253 characters, more than some fields of an Event.
func TestNoticeBecomesEventOfPod(t *testing.T) {
	for _, size := range []int{4, 253} {
		synctest.Test(t, func(t *testing.T) {
			client, pod, node := fake.NewClientset(), strings.Repeat("p", size), strings.Repeat("n", size)
			post := dra.PostNotices(client, dratest.Driver, node, slog.New(slog.DiscardHandler))
			post(claim.Notice{Pod: state.Pod{Namespace: "ns", Name: pod, UID: "uid"}, Reason: claim.NoticeFailed, Text: strings.Repeat("é", 1000)})
			dratest.WaitIdle()
			list, err := client.EventsV1().Events("ns").List(t.Context(), metav1.ListOptions{})
			difftest.Must(t, err)
			if len(list.Items) != 1 {
				t.Fatalf("%d events", len(list.Items))
			}
			e := list.Items[0]
			if e.Regarding.Name != pod || e.Regarding.UID != "uid" || e.Reason != claim.NoticeFailed || !complete(e) {
				t.Errorf("got %+v", e)
			}
			if problems := validation.NameIsDNSSubdomain(e.GenerateName, true); len(e.Note) > 1024 || len(e.ReportingInstance) > 128 || problems != nil {
				t.Errorf("%d characters: the API server refuses %+v: %q", size, e, problems)
			}
		})
	}
}

// complete reports whether an Event has the fields that the API server requires.
func complete(e eventsv1.Event) bool {
	return !e.EventTime.IsZero() && e.ReportingController != "" && e.ReportingInstance != "" && e.Action != "" && e.Type == "Warning"
}

// A claim that was created again is another one.
func TestReadClaimIsOfTheClaimsUID(t *testing.T) {
	client := fake.NewClientset(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u1"}})
	for uid, exists := range map[types.UID]bool{"u1": true, "u0": false} {
		now, err := dra.ReadClaim(client)(t.Context(), kubeletplugin.NamespacedObject{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "a"}, UID: uid})
		if err != nil || (now != nil) != exists {
			t.Errorf("%s: %v, %v", uid, now, err)
		}
	}
}

// useAPI makes the agent use an API server, which accepts each status.
func useAPI(r *dratest.Rig, client *fake.Clientset) {
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, nil
	})
	o := &r.Options
	o.Status = func(ctx context.Context, report status.Report) error { return status.Apply(ctx, client, report) }
	o.Read, o.ClaimsOf, o.Notify = dra.ReadClaim(client), dra.ClaimsOf(client), dra.PostNotices(client, dratest.Driver, "node1", o.Log)
}

// asked counts the requests to an API server, such as "patch resourceclaims/status".
func asked(client *fake.Clientset) map[string]int {
	requests := map[string]int{}
	for _, a := range client.Actions() {
		requests[a.GetVerb()+" "+strings.TrimSuffix(a.GetResource().Resource+"/"+a.GetSubresource(), "/")]++
	}
	return requests
}

// The driver watches its own slices. A claim from a template costs one GET and one PATCH. The driver sends no
// requests while nothing happens on the node.
func TestEachClaimNeedsOneReadAndOnePatch(t *testing.T) {
	t.Parallel()
	const claims = 10
	r, n := dratest.NewRig(t), dratest.NewNode(t, "mlx5-switchdev")
	r.UsePlugins()
	client := dratest.APIServer(nil)
	useAPI(r, client)
	var looks atomic.Int64
	o := &r.Options
	o.Devices.Inventory = n.Inventory()
	o.Devices.Inventory.Poll = 10 * time.Millisecond
	netns := o.Netns
	o.Netns = func(path string) error { looks.Add(1); return netns(path) }
	r.StartKubelet(client, 0)
	difftest.Eventually(t, "the slices are published", func() bool { return asked(client)["create resourceslices"] == 2 })
	for i := range claims {
		name := fmt.Sprint("pod", i)
		claim := dratest.FromTemplate(r.ClaimOf(name, name, name, dratest.Net("x", "net1", "")))
		difftest.Must(t, client.Tracker().Add(claim))
		r.PrepareByKubelet(claim)
		difftest.Must(t, r.RunPod(r.Sandbox(name, name)))
	}
	difftest.Eventually(t, "each status is sent", func() bool { return asked(client)["patch resourceclaims/status"] >= claims })
	before := looks.Load()
	difftest.Eventually(t, "the worker has checked each claim many times", func() bool { return looks.Load() > before+20*claims })
	expected := map[string]int{
		"get nodes": 1, "list resourceslices": 1, "watch resourceslices": 1, "create resourceslices": 2,
		"get resourceclaims": claims, "patch resourceclaims/status": claims,
	}
	difftest.Same(t, "requests", asked(client), expected)
}
