//go:build e2e

package e2e

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// agentRequired configures the runtime's validator (docs/injection.md). It refuses a container without the agent if
// its pod requires the agent.
func agentRequired(t *testing.T, a *nodeAgent) {
	validate(t, a)
	s := begin(t)
	s.lan("lan", "10.11.89.0/24")
	pod := withNetworks("a", nil, "lan")
	pod.Annotations["required-plugins.noderesource.dev"] = `["devinfo-agent"]`
	t.Run("Away", func(t *testing.T) {
		a.away(t)
		s.create(pod)
		s.event("a", "devinfo-agent", "required")
		s.notRunning("a")
		s.create(withNetworks("b", nil, "lan"))
		s.has("container of a pod that does not require it", s.running("b"), files())
	})
	s.has("container once the agent is back", s.running("a"), files("net1"))
}

// validate adds the documented lines to the runtime's configuration until the end of the test.
func validate(t *testing.T, a *nodeAgent) {
	t.Helper()
	section := "[plugins.'io.containerd.nri.v1.nri'.default_validator]"
	runtime := containerRuntime(t)
	if runtime == "crio" {
		section = "[crio.nri.default_validator]"
	}
	lines := difftest.Block(t, filepath.Join(root, "docs"), "toml", section)
	config := configurationOf(t, runtime)
	file := filepath.Join(newDir(t), "runtime")
	difftest.Write(t, file, onNode(t, "cat", config)+"\n"+lines, 0o600)
	onNode(t, "mount", "--bind", file, config)
	t.Cleanup(func() {
		onNode(t, "umount", config)
		a.restart(t, runtime)
	})
	a.restart(t, runtime)
}

// restart kills the runtime, and waits until the agent is connected again.
func (a *nodeAgent) restart(t *testing.T, program string) {
	t.Helper()
	connections := func() int { return strings.Count(a.log(t), "container runtime connected") }
	before := connections()
	killOnNode(t, program)
	eventually(t, limit, func() error {
		if connections() == before {
			return errors.New("devinfo-agent is not connected again")
		}
		return nil
	})
	a.well(t)
}

// configurationOf returns the configuration file of a running program.
func configurationOf(t *testing.T, program string) string {
	t.Helper()
	processes := strings.Fields(onNode(t, "pidof", program)) // newest first, and the newest may be a child
	words := strings.Split(onNode(t, "cat", "/proc/"+processes[len(processes)-1]+"/cmdline"), "\x00")
	for n, word := range words {
		if word == "--config" {
			return words[n+1]
		}
	}
	t.Fatalf("%s has no --config: %q", program, words)
	return ""
}

// bothAgents runs cni-dra-driver beside devinfo-agent, and a pod with a network of each. CDI mounts the claim's file
// below the directory that the agent mounts.
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
