//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/publish"
)

// podsSay has a pod say what its networks have, a memif, a macvlan and a function declared for
// the pod: then nobody has to ask its node.
func podsSay(t *testing.T, a *nodeAgent) {
	s := begin(t)
	s.nad("mem", "", s.network("mem", map[string]any{
		"type": "devinfo", "deviceInfoFile": "auto", "delegates": []map[string]any{{"type": "userspace"}},
		"deviceInfo": map[string]any{"type": "memif", "memif": map[string]any{"role": "slave", "mode": "ethernet", "path": userspaceDir + "{containerID:12}/{ifName}"}},
	}))
	s.lan("lan", "10.11.97.0/24")
	s.declaring("card", map[string]any{"type": "pci", "pci": map[string]any{"pci-address": cluster.card}})
	s.create(withNetworks("a", nil, "mem", "lan", "card"))
	s.running("a")
	socket := userspaceDir + s.mustSandbox()[:12] + "/net1"
	if out := asKubectl(t, "-n", s.name, "--from-nodes=never"); strings.Contains(out, socket) {
		t.Errorf("the API says it before it is published:\n%s", out)
	}
	a.upgrade(t, map[string]any{"agent": map[string]any{"publish": true}})
	var annotation string
	eventually(t, limit, func() error {
		annotation = shell(t, "kubectl get pod a -n "+s.name+` -o jsonpath='{.metadata.annotations.`+strings.ReplaceAll(publish.Annotation, ".", `\.`)+`}'`)
		if strings.Count(annotation, `"device-info"`) != 3 {
			return fmt.Errorf("the pod says %q", annotation)
		}
		return nil
	})
	out := asKubectl(t, "-n", s.name, "--from-nodes=never", "--no-headers")
	if rows := strings.Join(strings.Fields(out), " "); !containsAll(rows, []string{"net1 memif " + socket, "net2 pci " + cluster.card, "net3 pci " + cluster.card}) {
		t.Errorf("kubectl devinfo does not have it of the annotation %s:\n%s", annotation, out)
	}
	if out := asKubectl(t, "who", socket, "--from-nodes=never"); !strings.Contains(out, s.name) {
		t.Errorf("kubectl devinfo who: %s", out)
	}
	s.delete("a")
	clean(t)
	a.upgrade(t, map[string]any{"agent": map[string]any{"publish": false}})
}
