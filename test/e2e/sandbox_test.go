//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readySandbox returns the ID of the only sandbox that runs in the space, or of those that pass a filter.
func (s *space) readySandbox(filter ...string) (string, error) {
	out, err := tryOnNode("", append([]string{"crictl", "pods", "--quiet", "--state", "ready", "--namespace", s.name}, filter...)...)
	if ids := strings.Fields(out); err == nil && len(ids) != 1 {
		err = fmt.Errorf("ready sandboxes: %v", ids)
	}
	return out, err
}

// sandboxOf returns the ID of the only sandbox of a pod that runs.
func (s *space) sandboxOf(pod string) string {
	s.Helper()
	id, err := s.readySandbox("--name", "^"+pod+"$")
	must(s.T, err)
	return id
}

// stop stops the sandbox of the pod "a", as an administrator of the node might, and returns its ID.
func (s *space) stop() string {
	s.Helper()
	id := s.sandboxOf("a")
	if _, err := tryOnNode("", "crictl", "stopp", id); err != nil {
		// The kubelet also stops the sandbox when it sees it ending. One of the two may then fail, because the node's
		// own network has been removed during its DEL.
		if now, _ := s.readySandbox(); now == id {
			s.Fatal(err)
		}
	}
	return id
}

// replacement waits for the sandbox that the kubelet creates after another one.
func (s *space) replacement(old string) (id string) {
	s.Helper()
	eventually(s.T, 3*time.Minute, func() (err error) {
		if id, err = s.readySandbox(); err == nil && id == old {
			err = fmt.Errorf("sandbox %s still runs", old)
		}
		return err
	})
	return id
}

// restarted waits until a pod's only container runs again.
func (s *space) restarted(pod string) {
	s.Helper()
	eventually(s.T, 3*time.Minute, func() error {
		p, err := cluster.client.CoreV1().Pods(s.name).Get(s.ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if list := p.Status.ContainerStatuses; len(list) != 1 || list[0].State.Running == nil || list[0].RestartCount == 0 {
			return fmt.Errorf("the container of pod %s does not run again: %+v", pod, list)
		}
		return nil
	})
}

// leases returns the addresses that host-local has assigned in a network.
func leases(t *testing.T, network map[string]any) []string {
	t.Helper()
	return strings.Fields(onNode(t, "find", "/var/lib/cni/networks/"+network["name"].(string), "-name", "10.*"))
}

func stopped(t *testing.T, _ *agent) {
	s, network := beginWith(t, "10.11.50.0/24")
	s.replacement(s.stop())
	s.attachedAgain(network, "10.11.50.")
}

// unheard kills the driver, and then stops the sandbox. The kubelet does not notice the kill, so it creates another
// sandbox. The claim's gate still admits only the first sandbox. So the runtime refuses the container until the
// driver is back and has attached the second sandbox.
func unheard(t *testing.T, a *agent) {
	if a.crash == nil {
		t.Skip("the kubelet starts the agent again at once")
	}
	s, network := beginWith(t, "10.11.54.0/24")
	back := a.away(t, a.crash)
	sandbox := s.replacement(s.stop())
	s.event("a", "createRuntime hook", "request lan, is held by pod "+s.name+"/a (net1)", "in a sandbox that has ended")
	if container := onNode(t, "crictl", "ps", "--quiet", "--state", "running", "--pod", sandbox); container != "" {
		t.Errorf("a container runs without the network of its claim: %s", container)
	}
	back()
	s.attachedAgain(network, "10.11.54.")
}

// beginWith creates a space with one pod "a" that is attached to a network.
func beginWith(t *testing.T, subnet string) (*space, map[string]any) {
	t.Helper()
	needsNode(t)
	s := begin(t)
	network := s.macvlan(subnet, map[string]any{"type": "devinfo", "capabilities": capability})
	s.pod("a", s.template(requests(request("lan", s.class("net1", network)))))
	s.attached("a", "net0", "lan", "net1", strings.TrimSuffix(subnet, "0/24"))
	return s, network
}

// attachedAgain waits until the pod of beginWith is attached in its next sandbox, and only there.
func (s *space) attachedAgain(network map[string]any, prefix string) {
	s.Helper()
	s.restarted("a")
	s.attached("a", "net0", "lan", "net1", prefix)
	eventually(s.T, 2*time.Minute, func() error {
		if all := leases(s.T, network); len(all) != 1 {
			return fmt.Errorf("one pod has the addresses %v", all)
		}
		return nil
	})
}

// survives checks that a pod stays attached during an outage, that earlier work is finished after it, and that pods
// can be attached again.
func survives(t *testing.T, prefix string, outage func(*testing.T)) {
	t.Helper()
	needsNode(t)
	s := begin(t)
	network := s.macvlan(prefix+"0/24", map[string]any{"type": "devinfo", "capabilities": capability})
	template := s.template(requests(request("lan", s.class("net1", network))))
	s.pod("before", template)
	s.pod("stays", template)
	s.attached("before", "net0", "lan", "net1", prefix)
	had := s.attached("stays", "net0", "lan", "net1", prefix)
	outage(t)
	s.delete("before")
	s.pod("after", template)
	s.attached("after", "net0", "lan", "net1", prefix)
	if has := s.attached("stays", "net0", "lan", "net1", prefix); has != had {
		t.Errorf("the pod that stayed had %s, and has %s", had, has)
	}
}

func killAgent(t *testing.T, a *agent) { survives(t, "10.11.30.", a.kill) }

func killRuntime(t *testing.T, _ *agent) {
	survives(t, "10.11.32.", func(t *testing.T) { killOnNode(t, containerRuntime(t)) })
}

func killKubelet(t *testing.T, _ *agent) {
	survives(t, "10.11.33.", func(t *testing.T) { killOnNode(t, "kubelet") })
}

// waits stops the driver. A pod must not start without its network.
func waits(t *testing.T, a *agent) {
	s := begin(t)
	template := s.template(requests(request("lan", s.class("net1", s.macvlan("10.11.31.0/24")))))
	s.pod("before", template)
	s.attached("before", "net0", "lan", "net1", "10.11.31.")
	back := a.away(t, a.stop)
	pods := cluster.client.CoreV1().Pods(s.name)
	must(t, pods.Delete(s.ctx, "before", metav1.DeleteOptions{}))
	s.pod("a", template)
	s.event("a", "Failed") // from the kubelet, or from the scheduler if the node's slices no longer exist
	s.notRunning("a")
	back()
	s.attached("a", "net0", "lan", "net1", "10.11.31.")
}

// containerRuntime returns the name of the runtime's process.
func containerRuntime(t *testing.T) string {
	name, _, _ := strings.Cut(onlyNode(t).Status.NodeInfo.ContainerRuntimeVersion, ":")
	return map[string]string{"containerd": "containerd", "cri-o": "crio"}[name]
}
