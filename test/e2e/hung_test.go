//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hang is a CNI plugin that makes nothing, and whose DEL hangs while a file is there.
const hang = `#!/bin/sh
case $CNI_COMMAND in
ADD) echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "'$CNI_IFNAME'", "sandbox": "'$CNI_NETNS'"}]}' ;;
DEL) while [ -e ` + hanging + ` ]; do sleep 1; done ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
esac
`

const hanging = "/run/e2e-hang"

// hung starts a pod while DELs hang: it must not have to wait until one of them is killed.
func hung(t *testing.T, _ *agent) {
	needsNode(t)
	program(t, "e2e-hang", hang)
	s := begin(t)
	onNode(t, "touch", hanging)
	t.Cleanup(func() { onNode(t, "rm", "-f", hanging) })
	stuck := s.template(requests(request("lan", s.class("net1", s.network("hang", map[string]any{"type": "e2e-hang"})))))
	const many = 12
	for n := range many {
		s.pod(fmt.Sprintf("hung%d", n), stuck)
	}
	for n := range many {
		s.running(fmt.Sprintf("hung%d", n))
	}
	must(t, cluster.client.CoreV1().Pods(s.name).DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	eventually(t, 3*time.Minute, func() error {
		if n := len(hungPlugins()); n < many {
			return fmt.Errorf("%d of %d DELs hang", n, many)
		}
		return nil
	})
	fresh := s.template(requests(request("lan", s.class("net1", s.macvlan("10.11.53.0/24")))))
	for n := range 3 { // the plugin limit might end the DELs meanwhile where all is slow
		pod, before := fmt.Sprintf("new%d", n), hungPlugins()
		s.pod(pod, fresh)
		s.attached(pod, "net0", "lan", "net1", "10.11.53.")
		after := hungPlugins()
		if slices.ContainsFunc(before, func(pid string) bool { return slices.Contains(after, pid) }) {
			return
		}
		t.Logf("%s runs, but only after the DELs %v", pod, before)
	}
	t.Error("each new pod had to wait until DELs were killed")
}

// hungPlugins are the processes of DELs that hang.
func hungPlugins() []string {
	out, _ := tryOnNode("", "pidof", "-x", "e2e-hang") // none = exit code 1
	return strings.Fields(out)
}
