package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/remotecommand"

	"devinfo-cni.io/pkg/cluster"
)

// An agent is a pod of this label, namespace and node.
func agent(label, namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": label}},
		Spec:       corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// Anybody may give a pod the agents' label.
func TestOnlyThePodsOfTheAgentsNamespaceAreTheAgents(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	stopped := agent("devinfo-agent", "devinfo", "stopped")
	stopped.Status.Phase = corev1.PodFailed
	for name, test := range map[string]struct {
		pods []runtime.Object
		args string
		want string // pod and command, or what the error says
	}{
		"another's":        {[]runtime.Object{agent("devinfo-agent", "anybody", "a"), stopped}, "doctor n1", "--agent-namespace"},
		"both":             {[]runtime.Object{agent("cni-dra-driver", "devinfo", "a"), agent("devinfo-agent", "devinfo", "b")}, "doctor n1", "devinfo/a /devinfoctl --host-root /host doctor"},
		"the agent alone":  {[]runtime.Object{agent("devinfo-agent", "devinfo", "b")}, "doctor n1", "devinfo/b /devinfoctl doctor"},
		"as it is called":  {[]runtime.Object{agent("devinfo-agent", "net", "a")}, "doctor n1 --agent-namespace net", "net/a /devinfoctl doctor"},
		"the driver alone": {[]runtime.Object{agent("cni-dra-driver", "cni-dra-driver", "a")}, "doctor n1", "cni-dra-driver/a /devinfoctl --host-root /host doctor"},
		"what is offered":  {[]runtime.Object{agent("devinfo-agent", "devinfo", "a"), agent("cni-dra-driver", "cni-dra-driver", "b")}, "offered n1", "cni-dra-driver/b /devinfoctl --host-root /host offered"},
		"in one release":   {[]runtime.Object{agent("cni-dra-driver", "devinfo", "a"), stopped}, "doctor n1", "devinfo/a /devinfoctl --host-root /host doctor"},
	} {
		t.Run(name, func(t *testing.T) {
			tool, _, errOut := newAPIServer(t, append(test.pods, node)...).tool(t)
			got := ""
			tool.exec = func(_ context.Context, pod *corev1.Pod, command []string, _ remotecommand.StreamOptions) error {
				got = pod.Namespace + "/" + pod.Name + " " + strings.Join(command, " ")
				return nil
			}
			if code := tool.run(t.Context(), strings.Fields(test.args)...); code != 0 {
				got = errOut.String()
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("got %s", got)
			}
		})
	}
}

// Multus tells nothing of a memif's device: the node does, unless it is not to be asked.
func TestNodesAreAskedForWhatTheAPILacks(t *testing.T) {
	memif := func(node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "vpp-" + node, UID: types.UID(node), Annotations: map[string]string{cluster.StatusAnnotation: `[{"name": "mem", "interface": "net1", "dns": {}}]`}},
			Spec:       corev1.PodSpec{NodeName: node},
		}
	}
	objects := []runtime.Object{agent("devinfo-agent", "devinfo", "agent"), memif("n1"), memif("n2"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}}
	var many []runtime.Object
	for n := range 20 {
		many = append(many, memif(fmt.Sprintf("n%02d", n)))
	}
	for name, test := range map[string]struct {
		objects []runtime.Object
		args    string
		code    int
		out     string // a line has it
		says    string // on stderr; "" = nothing
		asked   int
	}{
		"one answers":  {objects, "-A -o wide", 0, "/run/m", "note: devices of networks that the API does not name are not known of n2: no pod of devinfo-agent", 1},
		"who":          {objects, "who /run/m --node n1", 0, "vpp-n1", "", 1},
		"who, of some": {many, "who /run/none", 3, "", "kubectl devinfo: no pod that could be looked at has /run/none", 0},
		"one pod":      {objects, "pod vpp-n1 -n shop", 0, "source    node", "", 1},
		"never":        {objects, "-A --from-nodes never", 0, "-  ", "", 0},
		"too many":     {many, "-A", 0, "vpp-n19", "note: 4 nodes with networks of which the API names no device were not asked for it: n16, n17, n18, n19;", 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t, test.objects...)
			tool, stdout, stderr := server.tool(t)
			asked := 0
			tool.exec = func(_ context.Context, _ *corev1.Pod, _ []string, streams remotecommand.StreamOptions) error {
				asked++
				_, err := fmt.Fprint(streams.Stdout, `{"attachments": [{"namespace": "shop", "pod": "vpp-n1", "network": "mem", "containerID": "c", "interface": "net1", "type": "memif", "device": "/run/m", "state": "Ok"}]}`)
				return err
			}
			code := tool.run(t.Context(), strings.Fields(test.args)...)
			if code != test.code || !strings.Contains(stdout.String(), test.out) || !strings.Contains(stderr.String(), test.says) || (test.says == "") != (stderr.Len() == 0) || asked != test.asked {
				t.Errorf("exit code %d, %d asked: %s%s", code, asked, stdout, stderr)
			}
		})
	}
}
