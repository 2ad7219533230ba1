//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hundred pods come at once, and go at once.
func hundred(t *testing.T, _ *agent) {
	s := begin(t)
	network := s.macvlan("10.11.52.0/24")
	template := s.template(requests(request("lan", s.class("net1", network))))
	began := time.Now()
	for n := range 100 {
		s.pod(fmt.Sprintf("p%d", n), template)
	}
	eventually(t, 20*time.Minute, func() error {
		list, err := cluster.client.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if n := running(list.Items); n != 100 {
			return fmt.Errorf("%d of 100 pods run", n)
		}
		return nil
	})
	t.Logf("100 pods run after %v", time.Since(began).Round(time.Second))
	for n := range 100 {
		s.attached(fmt.Sprintf("p%d", n), "net0", "lan", "net1", "10.11.52.")
	}
	if len(cluster.node) > 0 {
		if all := leases(t, network); len(all) != 100 {
			t.Errorf("100 pods have %d addresses", len(all))
		}
	}
	began = time.Now()
	s.deletePods(s.ctx)
	t.Logf("100 pods are gone after %v", time.Since(began).Round(time.Second))
	clean(t)
}

// running counts the pods that do.
func running(pods []corev1.Pod) (n int) {
	for _, p := range pods {
		if p.Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n
}
