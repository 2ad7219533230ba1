//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"devinfo-cni.io/test/difftest"
)

const clusterNetwork = "/etc/cni/net.d/10-cluster.conflist"

// TestDevinfoInDefaultNetwork adds devinfo to the network of all pods. The node must stay ready, and pods must not add
// lines to the log.
func TestDevinfoInDefaultNetwork(t *testing.T) {
	needsKit(t, "they change the network of all pods")
	installAgent(t, map[string]any{"logFile": nodeLog})
	plain := onNode(t, "cat", clusterNetwork)
	t.Cleanup(func() { writeNode(t, clusterNetwork, plain) })
	since := readySince(t)
	s := begin(t)
	writeNode(t, clusterNetwork, withDevinfo(t, plain))
	eventually(t, limit, func() error { // until the runtime uses the new network
		s.create(podWith("first"))
		defer s.delete("first")
		s.running("first")
		return s.usesDevinfo()
	})
	for n := range 10 {
		pod := fmt.Sprint("pod", n)
		s.create(podWith(pod))
		s.running(pod)
	}
	if log, err := tryOnNode("", "cat", nodeLog); err == nil && log != "" {
		t.Errorf("the log of pods without any device:\n%s", log)
	}
	difftest.Same(t, "the time since which the node is ready", readySince(t), since)
}

// withDevinfo returns the network with devinfo as its last plugin.
func withDevinfo(t *testing.T, network string) string {
	t.Helper()
	var list map[string]any
	must(t, json.Unmarshal([]byte(network), &list))
	list["plugins"] = append(list["plugins"].([]any), map[string]any{"type": "devinfo", "deviceInfoFile": "auto"})
	text, err := json.Marshal(list)
	must(t, err)
	return string(text)
}

// writeNode replaces a file of the node atomically.
func writeNode(t *testing.T, path, text string) {
	t.Helper()
	feedOnNode(t, text, "tee", path+".e2e")
	onNode(t, "mv", path+".e2e", path)
}

// usesDevinfo returns an error unless the space's only pod was attached with devinfo, according to the result in
// libcni's cache.
func (s *space) usesDevinfo() error {
	out, err := tryOnNode("cat $(grep -l "+s.name+" /var/lib/cni/results/cluster-*)", "sh")
	if err != nil {
		return err
	}
	var kept struct{ Config []byte }
	if err := json.Unmarshal([]byte(out), &kept); err != nil || !strings.Contains(string(kept.Config), `"type":"devinfo"`) {
		return fmt.Errorf("no devinfo in the network of the pod: %w: %s", err, out)
	}
	return nil
}

// readySince returns the time since which the node is ready.
func readySince(t *testing.T) time.Time {
	t.Helper()
	for _, c := range onlyNode(t).Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	t.Fatal("the node is not ready")
	return time.Time{}
}
