//go:build e2e

package e2e

import "testing"

// bothAgents runs cni-dra-driver beside devinfo-agent, and a pod with a network from each: what CDI
// mounts for the claim is below the directory that the agent mounts.
func bothAgents(t *testing.T, _ *nodeAgent) {
	startProcess(t)
	s := begin(t)
	s.lan("lan", "10.11.93.0/24")
	claimed := s.macvlan("10.11.94.0/24", map[string]any{"type": "devinfo", "capabilities": capability, "deviceInfo": declaredCard()})
	pod := withNetworks("a", nil, "lan")
	with := podWith("a", s.template(requests(request("lan", s.class("net9", claimed)))))
	pod.Spec.ResourceClaims, pod.Spec.Containers[0].Resources = with.Spec.ResourceClaims, with.Spec.Containers[0].Resources
	other := *with.Spec.Containers[0].DeepCopy()
	other.Name, other.Resources.Claims = "unclaimed", nil
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, other)
	pod.Spec.InitContainers[0].Command = []string{"/pod-view", "-once"}
	s.create(pod)
	s.attached("a", "net0", "lan", "net9", "10.11.94.")
	view := s.running("a")
	s.has("container with the claim", view, files("net1", "net9"))
	s.tells(view, "net1", cardInfo("1.1.0").Encode())
	s.tells(view, "net9", cardInfo("1.1.0").Encode())
	without := s.said("a", "unclaimed")
	s.has("container without the claim", without, files("net1"))
	s.knows(without)
}
