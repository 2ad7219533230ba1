//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// onDisk is a script that lists the files that attachments may leave on the node, and the files that must not change
// there. It ignores directories that are created only once.
const onDisk = `
exec 2>/dev/null
find /var/lib/cni /var/run/cdi/ /var/run/k8s.cni.cncf.io /var/run/devinfo-agent/ /var/run/vhost-user /etc/cni /opt/cni/bin ` +
	`! -type d ! -name last_reserved_ip.0 ! -name lock ! -path '/var/lib/cni/networks/e2e-*' ! -path '/var/lib/cni/results/*cluster*' ! -path '/var/run/k8s.cni.cncf.io/devinfo/dp*' | sort
find /var/run/devinfo-agent/containers/ ` + userspaceDir + ` -mindepth 1
ip -o link show type macvlan
true
`

func listing(t *testing.T) string {
	t.Helper()
	return feedOnNode(t, onDisk, "sh")
}

// fifty creates and deletes fifty pods twice. The first time, a newer agent replaces the agent while they start. The
// second time, the runtime and the kubelet are killed while the pods start, with CRI-O when they run, and the pods are
// deleted by force.
func fifty(t *testing.T, a *nodeAgent) {
	next := newerAgent(t)
	before := listing(t)
	s := begin(t)
	s.lan("lan", "10.11.92.0/24")
	s.socket()
	create := func() {
		for n := range 50 {
			s.create(withNetworks(fmt.Sprintf("p%d", n), nil, "lan", "socket"))
		}
	}
	create()
	a.patch(t, `{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "`+next+`"}`)
	s.allRun(50)
	eventually(t, limit, func() error {
		if out := onNode(t, "/opt/cni/bin/devinfo", "--version"); !strings.Contains(out, newerVersion) {
			return fmt.Errorf("the plugin on the node is %s", out)
		}
		return nil
	})
	s.deletePods(s.ctx)
	asBefore(t, before)

	create()
	if containerRuntime(t) == "crio" { // it would never remove the network namespaces of pods that it is starting
		s.allRun(50)
	}
	s.until(s.ctx, limit, func(pods []corev1.Pod) error { // when some pods run and others are still starting
		if running(pods) == 0 {
			return errors.New("none of the pods runs")
		}
		return nil
	})
	killOnNode(t, containerRuntime(t))
	killOnNode(t, "kubelet")
	s.allRun(50)
	a.well(t)
	s.deletePodsWithin(s.ctx, 10*time.Minute, 0) // the API server drops the pods at once
	asBefore(t, before)
}

// allRun waits until this number of pods run.
func (s *space) allRun(want int) {
	s.Helper()
	began := time.Now()
	s.until(s.ctx, 20*time.Minute, func(pods []corev1.Pod) error {
		if n := running(pods); n != want {
			return fmt.Errorf("%d of %d pods run", n, want)
		}
		return nil
	})
	s.Logf("%d pods run after %v", want, time.Since(began).Round(time.Second))
}

// asBefore waits until the node's files are the same as before. It ignores directories.
func asBefore(t *testing.T, before string) {
	t.Helper()
	clean(t)
	eventually(t, 5*time.Minute, func() error {
		if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(listing(t), "\n")); diff != "" {
			return fmt.Errorf("the node (- is before, + is after):\n%s", diff)
		}
		return nil
	})
}

const newerVersion = "v99.0.0"

// newerAgent builds an image of the same programs with a higher version.
func newerAgent(t *testing.T) string {
	t.Helper()
	dir := newDir(t)
	shell(t, "CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X devinfo-cni.io/pkg/core/build.version="+newerVersion+"' -o "+dir+"/ ./cmd/devinfo-agent ./cmd/devinfo ./cmd/devinfoctl")
	shell(t, "cd "+dir+" && $E2E_CLUSTER image devinfo-agent-newer devinfo-agent devinfo devinfoctl")
	return "cluster.local/devinfo-agent-newer:1"
}
