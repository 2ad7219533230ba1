//go:build e2e

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// optedOut are pods that are given nothing: by annotation, namespace, or without a network.
func optedOut(t *testing.T, a *nodeAgent) {
	s := begin(t)
	s.lan("lan", "10.11.85.0/24")
	pod := withNetworks("a", nil, "lan")
	pod.Annotations["devinfo-cni.io/inject"] = "false"
	s.create(pod)
	s.has("container of a pod that says no", s.running("a"), files())
	s.create(podWith("b"))
	s.has("container of a pod without networks", s.running("b"), files())
	a.flag(t, "--inject-exclude-namespaces=kube-system,"+s.name)
	s.create(withNetworks("c", nil, "lan"))
	s.has("container in a namespace that is left out", s.running("c"), files())
}

// requiredAndMissing is a pod that requires what a bridge never has, with both policies.
func requiredAndMissing(t *testing.T, a *nodeAgent) {
	s := begin(t)
	s.lan("lan", "10.11.86.0/24")
	s.nad("plain", "", s.macvlan("10.11.87.0/24"))
	pod := func(name, required string) *corev1.Pod {
		pod := withNetworks(name, nil, "lan", "plain")
		pod.Annotations["devinfo-cni.io/require"] = required
		return pod
	}
	s.create(pod("a", "net1,net2"))
	s.has("container that is passed", s.running("a"), files("net1"))
	if log := a.log(t); !strings.Contains(log, "interface net2, which the annotation devinfo-cni.io/require names, has no device information") {
		t.Errorf("the agent's log does not say what is missing:\n%s", log)
	}
	a.flag(t, "--when-missing=refuse")
	s.create(pod("b", "net1"))
	s.has("container that has what it requires", s.running("b"), files("net1"))
	s.create(pod("c", "net1,net2"))
	s.event("c", "pod "+s.name+"/c, container view: interface net2, which the annotation devinfo-cni.io/require names, has no device information")
	s.notRunning("c")
	s.create(podWith("d"))
	s.running("d")
}

// agentAway has no agent on the node: pods start, and have nothing; when it is back those that
// start have all.
func agentAway(t *testing.T, a *nodeAgent) {
	s := begin(t)
	s.lan("lan", "10.11.88.0/24")
	t.Run("Away", func(t *testing.T) {
		a.away(t)
		s.create(withNetworks("a", nil, "lan"))
		s.has("container", s.running("a"), files())
	})
	s.create(withNetworks("b", nil, "lan"))
	s.has("container of a pod after that", s.running("b"), files("net1"))
	s.has("container of the pod before", s.running("a"), files())
}
