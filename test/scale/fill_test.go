package main

import (
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"devinfo-cni.io/pkg/cluster"
)

// What is measured is what a cluster has: each attachment has a device, and that of a claim is in
// its node's slices.
func TestAFleetHasTwoAttachmentsInEachPod(t *testing.T) {
	f := &fleet{nodes: 3, vfs: 16, pods: 12, claims: 4}
	client, made := fake.NewClientset(), atomic.Int64{}
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		object, err := meta.Accessor(action.(clienttesting.CreateAction).GetObject())
		if err == nil {
			object.SetUID(types.UID(fmt.Sprint("uid", made.Add(1))))
		}
		if err == nil && object.GetName() == "" {
			object.SetName(object.GetGenerateName() + string(object.GetUID()))
		}
		return false, nil, err
	})
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	if err := f.fill(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	view, all := cluster.View{}, metav1.ListOptions{}
	pods, _ := client.CoreV1().Pods("").List(t.Context(), all)
	claims, _ := client.ResourceV1().ResourceClaims("").List(t.Context(), all)
	slices, _ := client.ResourceV1().ResourceSlices().List(t.Context(), all)
	for n := range pods.Items {
		view.Pod(&pods.Items[n])
		if pods.Items[n].Status.Phase != corev1.PodRunning {
			t.Errorf("%s does not run", pods.Items[n].Name)
		}
	}
	for n := range claims.Items {
		view.Claim(&claims.Items[n])
	}
	for n := range slices.Items {
		view.Slice(&slices.Items[n])
	}
	if named := len(view.Claims()); named != f.claims || len(claims.Items) != f.claims || len(view.Nodes()) == 0 {
		t.Errorf("%d claims, of which pods name %d", len(claims.Items), named)
	}
	devices, byClaim := map[string]bool{}, 0
	for _, a := range view.Take() {
		if a.Claim != "" {
			byClaim++
		}
		if a.Type != "pci" || a.PF == "" || a.RDMA == "" || a.MAC == "" || a.Problem != "" {
			t.Errorf("%+v", a)
		}
		devices[a.Node+a.Device] = true
	}
	if len(devices) != 2*f.pods || byClaim != f.claims {
		t.Errorf("%d devices, %d by claims", len(devices), byClaim)
	}
	if f.vfs = 7; f.check() == nil {
		t.Error("7 VFs are enough for 4 pods of a node")
	}
}
