//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// asKubectl runs kubectl-devinfo as kubectl does.
func asKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t, args...)
	if err != nil {
		t.Errorf("kubectl devinfo %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func tryKubectl(t *testing.T, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin/kubectl-devinfo"), append(args, "--kubeconfig="+cluster.kubeconfig)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A question is arguments of kubectl-devinfo, and what the answer has to say, words with one space
// between them.
type question struct{ args, want []string }

func asked(t *testing.T, questions []question) {
	t.Helper()
	for _, q := range questions {
		out := asKubectl(t, q.args...)
		var lines []string
		for line := range strings.Lines(out) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if !containsAll(strings.Join(lines, "\n"), q.want) {
			t.Errorf("kubectl devinfo %s does not say %q:\n%.3000s", strings.Join(q.args, " "), q.want, out)
		}
	}
}

func kubectlDevinfo(t *testing.T, a *nodeAgent) {
	var mounts []string
	for name, path := range map[string]string{"cni-conf": "/etc/cni/net.d", "pod-resources": "/var/lib/kubelet/pod-resources"} { // for doctor
		mounts = append(mounts, fmt.Sprintf(`{"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": %q, "hostPath": {"path": %q}}},
			{"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-", "value": {"name": %[1]q, "mountPath": %[2]q, "readOnly": true}}`, name, path))
	}
	a.patch(t, strings.Join(mounts, ", "))
	s := begin(t)
	s.nad("lan", nicResource, s.macvlan("10.11.91.0/24", map[string]any{"type": "devinfo", "capabilities": capability}))
	s.lan("from-node", "10.11.99.0/24") // names no resource: the API does not have its device
	s.create(withNetworks("a", []string{nicResource}, "lan", "from-node"))
	s.running("a")
	node := onlyNode(t).Name
	row := "a " + s.name + "/lan net1 pci " + cluster.card + " - - - - " + node
	fromNode := "a " + s.name + "/from-node net2 pci " + cluster.card + " - - - - " + node
	asked(t, []question{
		{[]string{"-n", s.name}, []string{row, fromNode}},
		{[]string{"-n", s.name, "--from-nodes=never"}, []string{row, "net2 - - "}},
		{[]string{"list", "-A", "--node", node}, []string{s.name + " " + row}},
		{[]string{"who", cluster.card, "--node", node, "--no-headers"}, []string{s.name + " " + row}},
		{[]string{"pod", "a", "-n", s.name}, []string{"net1", "device " + cluster.card, `"pci-address": "` + cluster.card + `"`}},
		{[]string{"capture", node}, []string{"sys/bus/pci/devices/" + cluster.card, `"pod": "` + s.name + "/a\",\n" + `"resource": "` + nicResource + "\",\n" + `"device": "` + cluster.card + `"`}},
	})
	said := []string{"the devinfo plugin is installed, and is of this build", "2 attachments, all as they should be", "no network configuration on this node has devinfo in it"}
	if out := asKubectl(t, "doctor", node); !containsAll(out, said) || strings.Contains(out, "pod-resources") {
		t.Errorf("kubectl devinfo doctor does not say %q, or cannot see something:\n%s", said, out)
	}
}
