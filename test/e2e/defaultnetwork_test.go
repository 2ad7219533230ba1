//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const clusterNetwork = "/etc/cni/net.d/10-cluster.conflist"

// measured is the environment variable that makes the test measure more sandboxes, and fail if devinfo slows them
// down by more than 5 %. It needs an otherwise idle machine.
const measured = "E2E_MEASURE"

// TestDevinfoInDefaultNetwork adds devinfo to the network of all pods. The node must stay ready, and pods must not add
// lines to the log.
func TestDevinfoInDefaultNetwork(t *testing.T) {
	needsKit(t, "they change the network of all pods")
	installAgent(t, map[string]any{"logFile": nodeLog})
	plain := onNode(t, "cat", clusterNetwork)
	t.Cleanup(func() { writeNode(t, clusterNetwork, plain) })
	networks := map[bool]string{false: plain, true: withDevinfo(t, plain)}
	notReady := watchNode(t)
	s := begin(t)
	rounds := 1
	if os.Getenv(measured) != "" {
		rounds = 12
	}
	took := map[bool][]time.Duration{}
	for round := range rounds {
		for turn := range 2 { // alternately, so that other load on the machine affects both equally
			devinfo := (round+turn)%2 == 1
			took[devinfo] = append(took[devinfo], s.tenPods(networks[devinfo], fmt.Sprintf("r%d-%v", round, devinfo), devinfo)...)
		}
	}
	with, without := median(took[true]), median(took[false])
	ratio := float64(with) / float64(without)
	t.Logf("a sandbox takes %v without devinfo, %v with it (medians of %d): %.3f times as long", without, with, len(took[true]), ratio)
	if os.Getenv(measured) != "" && ratio > 1.05 {
		t.Errorf("%.3f is more than 1.05", ratio)
	}
	if log, err := tryOnNode("", "cat", nodeLog); err == nil && log != "" {
		t.Errorf("the log of %d pods without any device:\n%s", len(took[true]), log)
	}
	if err := notReady(); err != nil {
		t.Error(err)
	}
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
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

// tenPods returns the kubelet's times for the sandboxes of ten pods, which run one after the other.
func (s *space) tenPods(network, name string, devinfo bool) (took []time.Duration) {
	s.Helper()
	writeNode(s.T, clusterNetwork, network)
	s.create(podWith(name)) // repeated until the runtime uses the new network
	eventually(s.T, limit, func() error {
		s.running(name)
		used, err := s.usesDevinfo()
		if err == nil && used != devinfo {
			s.delete(name)
			s.create(podWith(name))
			err = fmt.Errorf("devinfo in the network of pod %s: %v", name, used)
		}
		return err
	})
	s.delete(name)
	for n := range 10 {
		pod, before := fmt.Sprintf("%s-%d", name, n), sandboxTime(s.T)
		s.create(podWith(pod))
		s.running(pod)
		took = append(took, sandboxTime(s.T)-before)
	}
	s.deletePods(s.ctx)
	return took
}

// usesDevinfo reports whether the space's only pod was attached with devinfo, according to the result in libcni's
// cache.
func (s *space) usesDevinfo() (bool, error) {
	out, err := tryOnNode("cat $(grep -l "+s.name+" /var/lib/cni/results/cluster-*)", "sh")
	if err != nil {
		return false, err
	}
	var kept struct{ Config []byte }
	if err := json.Unmarshal([]byte(out), &kept); err != nil {
		return false, fmt.Errorf("%w: %s", err, out)
	}
	return strings.Contains(string(kept.Config), `"type":"devinfo"`), nil
}

var sandboxSeconds = regexp.MustCompile(`(?m)^kubelet_run_podsandbox_duration_seconds_sum\{.*\} (\S+)$`)

// sandboxTime returns the kubelet's total time for sandboxes.
func sandboxTime(t *testing.T) time.Duration {
	t.Helper()
	text := shell(t, "kubectl get --raw /api/v1/nodes/"+onlyNode(t).Name+"/proxy/metrics | grep ^kubelet_run_podsandbox_duration_seconds_sum")
	var sum float64
	for _, found := range sandboxSeconds.FindAllStringSubmatch(text, -1) {
		seconds, err := strconv.ParseFloat(found[1], 64)
		must(t, err)
		sum += seconds
	}
	if sum == 0 {
		t.Fatalf("the kubelet has no kubelet_run_podsandbox_duration_seconds_sum:\n%s", text)
	}
	return time.Duration(sum * float64(time.Second))
}

// watchNode records whether the node was not ready at any time until notReady is called.
func watchNode(t *testing.T) (notReady func() error) {
	t.Helper()
	node := onlyNode(t)
	watch, err := cluster.client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: node.ResourceVersion})
	must(t, err)
	return func() (err error) {
		watch.Stop()
		for event := range watch.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if !ok {
				continue
			}
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					err = errors.Join(err, fmt.Errorf("the node was not ready: %s", strings.TrimSpace(c.Message)))
				}
			}
		}
		return err
	}
}
