//go:build e2e

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// asAgent is a client with an agent's token.
func asAgent(t *testing.T, node *corev1.Node) kubernetes.Interface {
	t.Helper()
	admin, err := clientcmd.BuildConfigFromFlags("", cluster.kubeconfig)
	must(t, err)
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token(t, node)
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

// rights are those of an agent's token, as the API server sees them.
func rights(t *testing.T, _ *agent) {
	nodes, err := cluster.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	node := &nodes.Items[0]
	client := asAgent(t, node)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	create := func(driver, node string) error {
		_, err := client.ResourceV1().ResourceSlices().Create(t.Context(), &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
				Devices: []resourceapi.Device{{Name: "cni"}},
			},
		}, dry)
		return err
	}
	if err := create(driver, node.Name); err != nil {
		t.Errorf("its own: %v", err)
	}
	if err := create(driver, "e2e-nowhere"); err == nil || !strings.Contains(err.Error(), "of another node") {
		t.Errorf("another node's: %v", err)
	}
	if err := create("gpu.example.com", node.Name); err == nil || !strings.Contains(err.Error(), "only the ResourceSlices of driver") {
		t.Errorf("another driver's: %v", err)
	}
	if _, err := client.CoreV1().Secrets(system).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("secrets: %v", err)
	}
	if _, err := client.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("pods: %v", err)
	}
}
