//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// inUse follows "Remove" of docs/install.md while a pod has a network of devinfo's: the agent
// removes nothing and says why, the pod is deleted as ever, and then the plugin goes.
func inUse(t *testing.T, _ *nodeAgent) {
	s := begin(t)
	s.lan("lan", "10.11.97.0/24")
	s.create(withNetworks("a", nil, "lan"))
	s.running("a")
	uninstall, _, found := strings.Cut(documented(t, "install.md", "## Remove"), "kubectl -n devinfo rollout status")
	if !found {
		t.Fatal("docs/install.md has no roll-out to wait for")
	}
	shell(t, uninstall)
	eventually(t, limit, func() error {
		out, err := exec.Command("kubectl", "--kubeconfig", cluster.kubeconfig, "-n", agentNamespace, "logs", "daemonset/"+agentName).CombinedOutput()
		if err == nil && !strings.Contains(string(out), "attachments are on record, 1 in all") {
			err = errors.New("it does not say what is in the way")
		}
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	onNode(t, "test", "-x", "/opt/cni/bin/devinfo")
	s.delete("a")
	eventually(t, 10*time.Minute, func() error { // the kubelet waits up to five minutes before it starts a container again
		_, err := tryOnNode("", "test", "!", "-e", "/opt/cni/bin/devinfo")
		return err
	})
}
