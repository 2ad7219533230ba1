//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// givenUp is a master that is not there: vlan's ADD fails, and so does its DEL until there is one.
func givenUp(t *testing.T, a *agent) {
	needsNode(t)
	s := begin(t)
	if cluster.kit != "" {
		onNode(t, "cp", binary(t, "vlan"), "/opt/cni/bin/")
	}
	network := s.on("10.11.44.0/24", map[string]any{"type": "vlan", "master": "e2e-nosuch0", "vlanId": 7})
	s.pod("a", s.template(requests(request("lan", s.class("net1", network)))))
	s.event("a", "NetworkNotAttached", "Link not found")
	s.deletePodsWithin(s.ctx, 3*time.Minute) // however many DELs fail
	s.event("a", "NetworkAbandoned", "Link not found")
	onNode(t, "ip", "link", "add", "e2e-nosuch0", "type", "bridge")
	t.Cleanup(func() { onNode(t, "ip", "link", "del", "e2e-nosuch0") })
	a.kill(t) // an agent that starts tries again what was given up
	clean(t)
}

// byForce deletes a pod of which the kubelet is not asked whether it has ended: a second one with
// its name is attached, and has the first one's address back only once that is given back.
func byForce(t *testing.T, _ *agent) {
	s := begin(t)
	network := s.macvlan("10.11.45.0/24")
	template := s.template(requests(request("lan", s.class("net1", network))))
	for range 3 {
		s.pod("a", template)
		s.attached("a", "net0", "lan", "net1", "10.11.45.")
		s.forced("a")
	}
	s.pod("a", template)
	has := s.attached("a", "net0", "lan", "net1", "10.11.45.")
	eventually(t, 2*time.Minute, func() error {
		if all := leases(t, network); len(all) != 1 || filepath.Base(all[0])+"/24" != has {
			return fmt.Errorf("one pod, with %s, has the addresses %v", has, all)
		}
		return nil
	})
}

// forced deletes a pod without waiting for its kubelet.
func (s *space) forced(pod string) {
	now := int64(0)
	if err := cluster.client.CoreV1().Pods(s.name).Delete(context.Background(), pod, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		s.Error(err)
	}
}

// claim makes a claim that pods share.
func (s *space) claim(spec resourceapi.ResourceClaimSpec) string {
	s.Helper()
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{GenerateName: "shared-"}, Spec: spec}
	c, err := cluster.client.ResourceV1().ResourceClaims(s.name).Create(s.ctx, c, metav1.CreateOptions{})
	must(s.T, err)
	return c.Name
}

// sharing is a pod's spec with that claim.
func sharing(claim string) corev1.PodSpec {
	spec := podWith("", "").Spec
	spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "net0", ResourceClaimName: &claim}} // in the template's place
	return spec
}

func takeTurns(t *testing.T, _ *agent) {
	s := begin(t)
	spec := sharing(s.claim(requests(request("lan", s.class("net1", s.macvlan("10.11.42.0/24"))))))
	for _, name := range []string{"one", "two"} {
		s.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
		if name == "one" {
			s.running("one")
		}
	}
	s.event("two", "is held by pod "+s.name+"/one")
	s.notRunning("two")
	s.delete("one")
	s.in("two", "net1", "10.11.42.")
}
