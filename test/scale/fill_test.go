package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/test/difftest"
)

// The benchmark must use pods like those in a real cluster.
func TestEachPodHasTwoOwnDevices(t *testing.T) {
	const count = 36
	client, view, all := fake.NewClientset(), cluster.View{}, metav1.ListOptions{}
	difftest.Must(t, fill(t.Context(), client, count))
	pods, _ := client.CoreV1().Pods("").List(t.Context(), all)
	claims, _ := client.ResourceV1().ResourceClaims("").List(t.Context(), all)
	for n := range pods.Items {
		view.Pod(&pods.Items[n])
	}
	for n := range claims.Items {
		view.Claim(&claims.Items[n])
	}
	devices, byClaim := map[string]bool{}, 0
	for _, a := range view.Attachments() {
		if a.Claim != "" {
			byClaim++
		}
		if a.Type != "pci" || a.PF == "" || a.RDMA == "" || a.MAC == "" || a.Problem != "" {
			t.Errorf("%+v", a)
		}
		devices[a.Node+a.Device.Device] = true
	}
	if len(devices) != 2*count || byClaim != count/3 || len(view.Claims()) != byClaim {
		t.Errorf("%d devices, %d of them by claims", len(devices), byClaim)
	}
}
