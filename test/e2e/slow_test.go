//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// heldScript is macvlan, but a verb waits as long as /run/e2e-hold/VERB exists, and fails as often as the file
// /run/e2e-fail/VERB has lines. macvlan does not care under which name it runs.
const heldScript = `#!/bin/sh
while [ -e /run/e2e-hold/$CNI_COMMAND ]; do sleep 0.2; done
if [ -s /run/e2e-fail/$CNI_COMMAND ]; then
	sleep 1
	sed -i 1d /run/e2e-fail/$CNI_COMMAND
	echo '{"cniVersion": "1.0.0", "code": 100, "msg": "e2e-held: not yet"}'
	exit 1
fi
exec /opt/cni/bin/macvlan
`

// held creates a space with a template for a network of the script, and one for a macvlan.
func held(t *testing.T, prefix string) (s *space, slow, fast string) {
	needsKit(t, "the plugin waits for files of the node")
	program(t, "e2e-held", heldScript)
	onNode(t, "mkdir", "-p", "/run/e2e-hold", "/run/e2e-fail")
	s = begin(t)
	t.Cleanup(func() { onNode(t, "rm", "-rf", "/run/e2e-hold", "/run/e2e-fail") }) // before the space is deleted
	network := s.on(prefix+"0/25", map[string]any{"type": "e2e-held", "master": cluster.master, "mode": "bridge"})
	slow = s.template(requests(request("lan", s.class("net1", network))))
	fast = s.template(requests(request("lan", s.class("net1", s.macvlan(prefix+"128/25")))))
	return s, slow, fast
}

func hold(t *testing.T, verb string)    { onNode(t, "touch", "/run/e2e-hold/"+verb) }
func release(t *testing.T, verb string) { onNode(t, "rm", "/run/e2e-hold/"+verb) }

// slowNetwork holds an ADD while another pod starts and while the driver is killed. The ADD that the kill interrupts is
// repeated.
func slowNetwork(t *testing.T, a *agent) {
	s, slow, fast := held(t, "10.11.60.")
	hold(t, "ADD")
	s.pod("slow", slow)
	s.event("slow", "Failed") // the container is refused as long as its network is not attached
	s.pod("fast", fast)
	s.attached("fast", "net0", "lan", "net1", "10.11.60.")
	s.notRunning("slow")
	sandbox := s.sandboxOf("slow")
	a.kill(t)
	s.notRunning("slow")
	release(t, "ADD")
	s.attached("slow", "net0", "lan", "net1", "10.11.60.")
	if now := s.sandboxOf("slow"); now != sandbox {
		t.Errorf("the slow network has taken sandboxes %s and %s", sandbox, now)
	}
}

// jobOverSlowNetworks runs Jobs whose pods may not restart. Their only containers run in the end.
func jobOverSlowNetworks(t *testing.T, a *agent) {
	s, slow, fast := held(t, "10.11.62.")
	hold(t, "ADD")
	job := func(name string, templates ...string) {
		pod := podWith(name, templates...)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers[0].Command = append(pod.Spec.Containers[0].Command, "-once")
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{Spec: pod.Spec},
		}}
		_, err := cluster.client.BatchV1().Jobs(s.name).Create(s.ctx, job, metav1.CreateOptions{})
		must(t, err)
	}
	job("slow", slow)
	job("fast", fast)
	done := func(name string) error {
		job, err := cluster.client.BatchV1().Jobs(s.name).Get(s.ctx, name, metav1.GetOptions{})
		if err == nil && job.Status.Failed > 0 {
			t.Fatalf("a pod of the job %s has failed: %+v", name, job.Status)
		}
		if err == nil && job.Status.Succeeded != 1 {
			err = fmt.Errorf("job %s: %+v", name, job.Status)
		}
		return err
	}
	eventually(t, 3*time.Minute, func() error { return done("fast") })
	a.kill(t)
	feedOnNode(t, "1\n2\n3\n", "tee", "/run/e2e-fail/ADD") // after the wait it also fails
	release(t, "ADD")
	eventually(t, 3*time.Minute, func() error { return done("slow") })
}

// slowEnd holds a DEL while another pod starts and ends, and while the driver is killed.
func slowEnd(t *testing.T, a *agent) {
	s, slow, fast := held(t, "10.11.63.")
	s.pod("slow", slow)
	s.attached("slow", "net0", "lan", "net1", "10.11.63.")
	hold(t, "DEL")
	must(t, cluster.client.CoreV1().Pods(s.name).Delete(s.ctx, "slow", metav1.DeleteOptions{}))
	s.pod("fast", fast)
	s.attached("fast", "net0", "lan", "net1", "10.11.63.")
	s.delete("fast")
	a.kill(t)
	release(t, "DEL")
	s.gone(s.ctx, 3*time.Minute)
	clean(t)
}

// driverRequired kills the driver during an ADD. Containers that do not use the claim wait nevertheless, because their pod
// requires the driver (docs/dra/README.md). A runtime with NRI before 0.12.4 notices only with the first container that the
// driver is gone, and creates it.
func driverRequired(t *testing.T, a *agent) {
	if a.crash == nil {
		t.Skip("the kubelet starts the driver again at once")
	}
	validate(t, func(t *testing.T, runtime string) { reconnected(t, runtime, a.log) })
	s, slow, _ := held(t, "10.11.65.")
	hold(t, "ADD")
	pod := podWith("a", slow)
	pod.Annotations = map[string]string{"required-plugins.noderesource.dev": `["` + driver + `"]`}
	for _, name := range []string{"first", "second"} {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name, Image: cluster.image, Command: []string{"/pod-view", "-once"}})
	}
	s.create(pod)
	s.event("a", "is not attached since the sandbox started")
	back := a.away(t, a.crash)
	s.event("a", driver, "not present")
	release(t, "ADD")
	back()
	s.attached("a", "net0", "lan", "net1", "10.11.65.")
	if v := s.prints("a", "second"); v.interfaceIn("net1", "10.11.65.") == nil {
		t.Errorf("the second container ran without the pod's network: %+v", v.Interfaces)
	}
}

// TestPodsOverSlowNetworks measures the start of pods whose network takes long, one after another and at once. Creating
// a pod and its sandbox takes a second or two; a pod that has waited for a retry of the kubelet would take ten more.
func TestPodsOverSlowNetworks(t *testing.T) {
	if os.Getenv("E2E_MEASURE") == "" {
		t.Skip("it measures, and needs an otherwise idle machine: make bench BENCH=pods")
	}
	needsKit(t, "the plugins are on the node")
	startProcess(t)
	for n, add := range []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second} {
		t.Run(add.String(), func(t *testing.T) {
			plugin := "e2e-slow-" + add.String()
			program(t, plugin, fmt.Sprintf("#!/bin/sh\n[ $CNI_COMMAND != ADD ] || sleep %v\nexec /opt/cni/bin/macvlan\n", add.Seconds()))
			s := begin(t)
			network := s.on(fmt.Sprintf("10.11.%d.0/24", 67+n), map[string]any{"type": plugin, "master": cluster.master, "mode": "bridge"})
			template := s.template(requests(request("lan", s.class("net1", network))))
			run := func(prefix string, count int) time.Duration {
				began := time.Now()
				for n := range count {
					s.create(podWith(fmt.Sprintf("%s-%d", prefix, n), template))
				}
				s.allRun(count)
				defer s.deletePods(s.ctx)
				return time.Since(began)
			}
			var alone []time.Duration
			for turn := range inTurn {
				alone = append(alone, run(fmt.Sprintf("one-%d", turn), 1))
			}
			t.Logf("ADD of %v: the pod runs after %v (median), the last of 20 at once after %v", add, median(alone), run("crowd", 20))
			if limit := add + 4*time.Second; median(alone) > limit {
				t.Errorf("a pod alone runs after %v, limit %v", median(alone), limit)
			}
		})
	}
}
