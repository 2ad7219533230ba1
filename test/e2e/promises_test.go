//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// givenUp uses a master interface that does not exist. vlan's ADD fails, and so does its DEL until the interface
// exists.
func givenUp(t *testing.T, a *agent) {
	needsNode(t)
	s := begin(t)
	if cluster.kit != "" {
		onNode(t, "cp", binary(t, "vlan"), "/opt/cni/bin/")
	}
	network := s.on("10.11.44.0/24", map[string]any{"type": "vlan", "master": "e2e-nosuch0", "vlanId": 7})
	s.pod("a", s.template(requests(request("lan", s.class("net1", network)))))
	s.event("a", "NetworkNotAttached", "Link not found")
	s.notRunning("a")
	s.deletePodsWithin(s.ctx, 3*time.Minute, 1) // although every DEL fails
	s.event("a", "NetworkNotDeleted", "Link not found")
	onNode(t, "ip", "link", "add", "e2e-nosuch0", "type", "bridge")
	t.Cleanup(func() { onNode(t, "ip", "link", "del", "e2e-nosuch0") })
	a.kill(t) // after its start the driver retries DELs that were given up
	clean(t)
}

// hundred creates a hundred pods at the same time, and deletes them by force, so that the API server does not wait for
// the kubelet.
func hundred(t *testing.T, _ *agent) {
	s := begin(t)
	network := s.macvlan("10.11.52.0/24")
	template := s.template(requests(request("lan", s.class("net1", network))))
	for n := range 100 {
		s.pod(fmt.Sprintf("p%d", n), template)
	}
	s.allRun(100)
	for n := range 100 {
		s.attached(fmt.Sprintf("p%d", n), "net0", "lan", "net1", "10.11.52.")
	}
	if len(cluster.node) > 0 {
		if all := leases(t, network); len(all) != 100 {
			t.Errorf("100 pods have %d addresses", len(all))
		}
	}
	s.deletePodsWithin(s.ctx, 10*time.Minute, 0)
	clean(t)
}

// running returns the number of running pods.
func running(pods []corev1.Pod) (n int) {
	for _, p := range pods {
		if p.Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n
}

// notRunning checks the containers, because a pod whose container has failed twice counts as Running.
func (s *space) notRunning(pod string) {
	s.Helper()
	p := s.get(pod)
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil {
			s.Errorf("pod %s is %s, its container %+v", pod, p.Status.Phase, c.State)
		}
	}
}

// forbidden creates a claim with a network of its own.
func forbidden(t *testing.T, _ *agent) {
	s := begin(t)
	network := map[string]any{"cniVersion": "1.0.0", "name": s.name, "type": "bridge", "bridge": "e2e-keep", "ipam": map[string]any{"type": "host-local"}}
	spec := requests(request("lan", "cni.networking.x-k8s.io"))
	spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{Requests: []string{"lan"}, DeviceConfiguration: opaque("net1", network)}}
	s.pod("a", s.template(spec))
	s.event("a", "a CNI configuration runs as root on the node, and this node accepts none from claims", "--allow-claim-config")
	s.notRunning("a")
}
