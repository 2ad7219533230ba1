//go:build e2e

package e2e

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// survives checks that a pod stays attached over an outage, that what was begun before is
// ended after it, and that pods can be attached again.
func (s *space) survives(subnet, prefix string, outage func(*testing.T)) {
	s.Helper()
	template := s.template(requests(request("lan", s.class("net1", s.macvlan(subnet, map[string]any{"type": "devinfo", "capabilities": capability})))))
	s.pod("before", template)
	s.pod("stays", template)
	s.attached("before", "net0", "lan", "net1", prefix)
	had := s.attached("stays", "net0", "lan", "net1", prefix)
	outage(s.T)
	s.delete("before")
	s.pod("after", template)
	s.attached("after", "net0", "lan", "net1", prefix)
	if has := s.attached("stays", "net0", "lan", "net1", prefix); has != had {
		s.Errorf("the pod that stayed had %s, and has %s", had, has)
	}
}

func killAgent(t *testing.T, a *agent) {
	if !a.allows { // which is killed from outside
		needsNode(t)
	}
	begin(t).survives("10.11.30.0/24", "10.11.30.", a.kill)
}

// waits is a node without the agent: a pod must not start without its network.
func waits(t *testing.T, a *agent) {
	s := begin(t)
	template := s.template(requests(request("lan", s.class("net1", s.macvlan("10.11.31.0/24")))))
	s.pod("before", template)
	s.attached("before", "net0", "lan", "net1", "10.11.31.")
	back := a.away(t, a.stop)
	pods := cluster.client.CoreV1().Pods(s.name)
	must(t, pods.Delete(s.ctx, "before", metav1.DeleteOptions{}))
	s.pod("a", template)
	s.event("a", "Failed") // of the kubelet, or of the scheduler once the node's slices are gone
	s.notRunning("a")
	back()
	s.attached("a", "net0", "lan", "net1", "10.11.31.")
}

// containerRuntime is the name of its process.
func containerRuntime(t *testing.T) string {
	name, _, _ := strings.Cut(onlyNode(t).Status.NodeInfo.ContainerRuntimeVersion, ":")
	return map[string]string{"containerd": "containerd", "cri-o": "crio"}[name]
}

func killRuntime(t *testing.T, _ *agent) {
	needsNode(t)
	begin(t).survives("10.11.32.0/24", "10.11.32.", func(t *testing.T) { killOnNode(t, containerRuntime(t)) })
}

func killKubelet(t *testing.T, _ *agent) {
	needsNode(t)
	begin(t).survives("10.11.33.0/24", "10.11.33.", func(t *testing.T) { killOnNode(t, "kubelet") })
}
