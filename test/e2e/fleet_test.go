//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// badNode rolls devinfo-agent out, and back, over the cluster's node and twenty that exist in the
// API alone, on one of which no agent becomes ready. That one holds up no other, and
// at no time are more agents away than the chart allows, a tenth of 21 nodes rounded up.
func badNode(t *testing.T, _ *nodeAgent) {
	const away = 3
	f := newFleet(t, 20)
	f.await(t, 0, "")
	roll := func(command string) {
		before := f.daemonSet(t).Generation
		helm(t, command)
		if now := f.daemonSet(t).Generation; now == before {
			t.Fatalf("%s changed nothing of the DaemonSet", command)
		}
		f.await(t, away, f.bad)
	}
	f.bad = f.name(7)
	roll("helm upgrade devinfo deploy/charts/devinfo --namespace devinfo --reuse-values --set-string agent.podAnnotations.e2e=roll-out")
	roll("helm rollback devinfo --namespace devinfo")
	f.bad = ""
	f.await(t, away, "")
}

// A fleet is nodes that exist in the API alone. They have room, and heartbeats; the
// agents' pods on them become ready when they are there, and go when they are deleted.
type fleet struct {
	ctx   context.Context
	nodes int
	bad   string // the node on which no pod becomes ready; "" = none
	beat  time.Time
}

func (f *fleet) name(n int) string { return fmt.Sprintf("fleet-%02d", n) }

func newFleet(t *testing.T, nodes int) *fleet {
	t.Helper()
	f := &fleet{ctx: context.Background(), nodes: nodes} // its end comes after that of the test's
	t.Cleanup(func() {
		f.bad = ""
		for n := range nodes {
			if err := cluster.client.CoreV1().Nodes().Delete(f.ctx, f.name(n), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
			err := cluster.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(f.ctx, f.name(n), metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
		eventually(t, limit, func() error {
			pods, err := f.serve()
			if err == nil && len(pods) > 1 {
				err = fmt.Errorf("%d pods of agents are there", len(pods))
			}
			return err
		})
		ready(t, agentNamespace, agentName)
	})
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for n := range nodes {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: f.name(n), Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: f.name(n)}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "e2e", Effect: corev1.TaintEffectNoSchedule}}},
		}
		if _, err := cluster.client.CoreV1().Nodes().Create(f.ctx, node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		status, err := json.Marshal(corev1.Node{Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
		}})
		if err == nil {
			_, err = cluster.client.CoreV1().Nodes().Patch(f.ctx, node.Name, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")
		}
		must(t, err)
	}
	return f
}

func (f *fleet) daemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	ds, err := cluster.client.AppsV1().DaemonSets(agentNamespace).Get(f.ctx, agentName, metav1.GetOptions{})
	must(t, err)
	return ds
}

// await does the nodes' part until all nodes but one have a ready agent of the DaemonSet's current
// template. More agents than may be away fail the test; 0 = any number may.
func (f *fleet) await(t *testing.T, away int, but string) {
	t.Helper()
	eventually(t, limit, func() error {
		ds := f.daemonSet(t)
		pods, err := f.serve()
		if err != nil {
			return err
		}
		missing, old := f.nodes+1, f.nodes+1
		if but != "" {
			old--
		}
		for _, p := range pods {
			if p.DeletionTimestamp != nil || !isReady(&p) {
				continue
			}
			missing--
			if p.Spec.NodeName != but && p.Labels["pod-template-generation"] == ds.Annotations[appsv1.DeprecatedTemplateGeneration] {
				old--
			}
		}
		if away > 0 && missing > away {
			t.Fatalf("%d agents are away at a time, %d may be", missing, away)
		}
		if old > 0 {
			return fmt.Errorf("%d nodes have no ready agent of the current template: %+v", old, ds.Status)
		}
		return nil
	})
}

// serve does what the nodes would, and returns the agents' pods as they were.
func (f *fleet) serve() ([]corev1.Pod, error) {
	if time.Since(f.beat) > 5*time.Second {
		if err := f.renew(); err != nil {
			return nil, err
		}
		f.beat = time.Now()
	}
	pods := cluster.client.CoreV1().Pods(agentNamespace)
	list, err := pods.List(f.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + agentName})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		var err error
		switch {
		case !strings.HasPrefix(p.Spec.NodeName, "fleet-"):
		case p.DeletionTimestamp != nil:
			err = pods.Delete(f.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		case !isReady(&p) && p.Spec.NodeName != f.bad:
			p := p.DeepCopy()
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
			_, err = pods.UpdateStatus(f.ctx, p, metav1.UpdateOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return nil, err
		}
	}
	return list.Items, nil
}

// renew is the nodes' heartbeat.
func (f *fleet) renew() error {
	leases := cluster.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for n := range f.nodes {
		name, now := f.name(n), metav1.NowMicro()
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &now}}
		_, err := leases.Create(f.ctx, lease, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			var renewed []byte
			if renewed, err = json.Marshal(lease); err == nil {
				_, err = leases.Patch(f.ctx, name, types.MergePatchType, renewed, metav1.PatchOptions{})
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

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
