package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/remotecommand"
)

// agent returns a running agent pod with this label on node n1.
func agent(label, namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": label}},
		Spec:       corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run"}}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// answer makes the agents' pods print the text for each command. It returns the commands.
func (t *tool) answer(text string) (calls *[]string) {
	calls = new([]string)
	t.exec = func(_ context.Context, pod *corev1.Pod, command []string, streams remotecommand.StreamOptions) error {
		*calls = append(*calls, pod.Namespace+"/"+pod.Name+" "+strings.Join(command, " "))
		_, err := fmt.Fprint(streams.Stdout, text)
		return err
	}
	return calls
}

// Any user may give a pod the agents' label, but few may mount directories of the node.
func TestOnlyPodThatMountsTheNodeIsUsed(t *testing.T) {
	planted := agent("cni-dra-driver", "anybody", "a")
	planted.Spec.Volumes = []corev1.Volume{{Name: "scratch"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	stopped := agent("devinfo-agent", "devinfo", "stopped")
	stopped.Status.Phase = corev1.PodFailed
	for name, test := range map[string]struct {
		pods []runtime.Object
		args string
		want string // pod and command, or the error
	}{
		"another's":        {[]runtime.Object{planted, stopped}, "doctor n1", "no pod of devinfo-agent or cni-dra-driver runs on node n1"},
		"beside another's": {[]runtime.Object{planted, agent("devinfo-agent", "net", "b")}, "doctor n1", "net/b /devinfoctl doctor"},
		"of a namespace":   {[]runtime.Object{agent("cni-dra-driver", "infra", "a"), agent("devinfo-agent", "net", "b")}, "doctor n1 --agent-namespace net", "net/b /devinfoctl doctor"},
		"both":             {[]runtime.Object{agent("cni-dra-driver", "devinfo", "a"), agent("devinfo-agent", "devinfo", "b")}, "doctor n1", "devinfo/a /devinfoctl --host-root /host doctor"},
		"the agent alone":  {[]runtime.Object{agent("devinfo-agent", "devinfo", "b")}, "doctor n1", "devinfo/b /devinfoctl doctor"},
		"anywhere":         {[]runtime.Object{agent("devinfo-agent", "net", "a")}, "doctor n1", "net/a /devinfoctl doctor"},
		"the driver alone": {[]runtime.Object{agent("cni-dra-driver", "cni-dra-driver", "a")}, "doctor n1", "cni-dra-driver/a /devinfoctl --host-root /host doctor"},
		"offered devices":  {[]runtime.Object{agent("devinfo-agent", "devinfo", "a"), agent("cni-dra-driver", "cni-dra-driver", "b")}, "offered n1", "cni-dra-driver/b /devinfoctl --host-root /host offered"},
		"the tree":         {[]runtime.Object{agent("devinfo-agent", "devinfo", "a")}, "topology n1 -- eth0", "devinfo/a /devinfoctl topology eth0"},
		"scrubbed":         {[]runtime.Object{agent("devinfo-agent", "devinfo", "a")}, "capture n1 --scrub", "devinfo/a /devinfoctl capture -o - --scrub"},
		"in one release":   {[]runtime.Object{agent("cni-dra-driver", "devinfo", "a"), stopped}, "doctor n1", "devinfo/a /devinfoctl --host-root /host doctor"},
	} {
		t.Run(name, func(t *testing.T) {
			tool, _, errOut := newAPIServer(t, append(test.pods, node)...).tool(t)
			calls := tool.answer("")
			tool.run(t.Context(), strings.Fields(test.args)...)
			if got := strings.Join(*calls, "\n") + errOut.String(); !strings.Contains(got, test.want) {
				t.Errorf("got %s", got)
			}
		})
	}
}

// Another user may control the pod, and so its output.
func TestControlCharactersFromNodeAreReplaced(t *testing.T) {
	for args, want := range map[string]string{"doctor n1": "ok\n\ufffd[31m\ufffd", "capture n1": "ok\n\x1b[31m\a"} { // a capture is a file
		tool, stdout, stderr := newAPIServer(t, agent("devinfo-agent", "devinfo", "a")).tool(t)
		tool.exec = func(_ context.Context, _ *corev1.Pod, _ []string, streams remotecommand.StreamOptions) error {
			_, errOut := fmt.Fprint(streams.Stderr, "warning\a\n")
			_, err := fmt.Fprint(streams.Stdout, "ok\n\x1b[31m\a")
			return errors.Join(errOut, err)
		}
		if code := tool.run(t.Context(), strings.Fields(args)...); code != 0 || stdout.String() != want || stderr.String() != "warning\ufffd\n" {
			t.Errorf("%s: exit code %d: %q %q", args, code, stdout, stderr)
		}
	}
}

// Multus does not record the device of a memif, but the node does. Reading it takes an exec into a pod that is root
// on its node, so the default is to query only a node that the command line names.
func TestOnlyTheNamedNodeIsQueried(t *testing.T) {
	memif := func(node string) *corev1.Pod {
		return pod("shop", "vpp-"+node, node, `[{"name": "mem", "interface": "net1", "dns": {}}]`)
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
		out     string // part of a line of the output
		says    string // standard error; "" = empty
		asked   int
	}{
		"a list":             {objects, "-A", 3, "net1        ?      ?        ?     ?             ?      -       n1", "note: the devices shown as ? are not in the API, and these nodes were not queried: n1, n2; use --from-nodes=always", 0},
		"of a node":          {objects, "-A --node n1", 3, "?", "--from-nodes=always", 0},
		"in JSON":            {objects, "-A -o json", 3, `"notAsked": true`, "--from-nodes=always", 0},
		"one answers":        {objects, "-A -o wide --from-nodes always", 3, "/run/m", "note: the devices shown as ? are unknown, because these nodes did not answer: n2: no pod of devinfo-agent", 1},
		"holder of a node":   {objects, "holder /run/m --node n1", 0, "vpp-n1", "", 1},
		"holder of all":      {many, "holder /run/none", 3, "", "kubectl devinfo: no pod among the queried ones has /run/none", 0},
		"holder, asked none": {objects, "holder /run/m --node n1 --from-nodes never", 3, "", "kubectl devinfo: no pod among the queried ones has /run/m", 0},
		"one pod":            {objects, "pod vpp-n1 -n shop", 0, "source    node", "", 1},
		"its information":    {objects, "pod vpp-n1 -n shop", 0, `"role": "master",`, "", 1},
		"pod, silent":        {objects, "pod vpp-n2 -n shop", 3, "device        ?", "n2: no pod of devinfo-agent", 0},
		"never":              {objects, "-A --from-nodes never", 0, "?  ", "", 0},
		"many":               {many, "-A", 3, "vpp-n19", "n00, n01, n02, n03, n04 and 15 more", 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t, test.objects...)
			tool, stdout, stderr := server.tool(t)
			asked := tool.answer(`{"attachments": [{"namespace": "shop", "pod": "vpp-n1", "network": "mem", "containerID": "c", "interface": "net1", "type": "memif", "device": "/run/m", "state": "Ok", "deviceInfo": {"type": "memif", "version": "1.1.0", "memif": {"role": "master", "path": "/run/m", "mode": "ip"}}}]}`)
			code := tool.run(t.Context(), strings.Fields(test.args)...)
			if code != test.code || !strings.Contains(stdout.String(), test.out) || !strings.Contains(stderr.String(), test.says) || (test.says == "") != (stderr.Len() == 0) || len(*asked) != test.asked {
				t.Errorf("exit code %d, asked: %q: %s%s", code, *asked, stdout, stderr)
			}
		})
	}
}

// definition returns a NetworkAttachmentDefinition in the namespace shop.
func definition(name, config string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"namespace": "shop", "name": name}, "spec": map[string]any{"config": config},
	}}
}

// The most frequent mistakes leave the pod running without an error in Kubernetes.
func TestProblemIsShownForPodWithoutDevice(t *testing.T) {
	chain := func(keys string) string {
		return `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "macvlan"}, {"type": "devinfo"` + keys + `}]}`
	}
	const recorded = `{"namespace": "shop", "pod": "a", "interface": "net1", "state": "Ok", "why": "no device found for interface net1: name one"}`
	const typo, node = "network shop/lan: spec.config.plugins[1].deviceInfofile: \"auto\": the key is not known; the nearest known one is \"deviceInfoFile\"",
		"node n1 has no record of a device for it; the container runtime's log there has the warnings of the plugin devinfo"
	for name, test := range map[string]struct {
		network, config, args string
		records               string // attachments that the node returns
		code                  int
		want                  string // "" = no problem
	}{
		"a typo":              {"shop/lan", chain(`, "deviceInfoFile": "auto", "deviceInfofile": "auto"`), "pod a -n shop", "", 0, typo},
		"of a node not asked": {"shop/lan", chain(`, "deviceInfoFile": "auto", "deviceInfofile": "auto"`), "-n shop -o wide", "", 3, typo},
		"no capability":       {"lan", chain(``), "pod a -n shop", "", 0, "network shop/lan: spec.config.plugins[1].deviceInfoFile: must be \"auto\", or the"},
		"no resourceName":     {"lan", chain(`, "capabilities": {"CNIDeviceInfoFile": true}`), "pod a -n shop", "", 0, "network shop/lan: spec.config.plugins[1].deviceInfoFile: should be \"auto\""},
		"above a veth":        {"lan", chain(`, "deviceInfoFile": "auto"`), "pod a -n shop", recorded, 0, "problem   no device found for interface net1: name one"},
		"a typo, recorded":    {"lan", chain(`, "deviceInfoFile": "auto", "deviceInfofile": "auto"`), "pod a -n shop", recorded, 0, typo + "; node n1: no device found for interface net1: name one"},
		"not recorded":        {"lan", chain(`, "deviceInfoFile": "auto"`), "pod a -n shop", "", 0, node},
		"unknown":             {"lan", chain(`, "deviceInfoFile": "auto"`), "-n shop -o wide", "", 3, ""},
		"without devinfo":     {"lan", `{"cniVersion": "1.0.0", "name": "n", "type": "macvlan"}`, "pod a -n shop", "", 0, ""},
		"another's":           {"shop/other", chain(``), "pod a -n shop", "", 0, ""},
		"no name":             {"shop/../../secrets/lan", chain(``), "pod a -n shop", "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status := `[{"name": "` + test.network + `", "interface": "net1", "dns": {}}]`
			server := newAPIServer(t, pod("shop", "a", "n1", status), agent("devinfo-agent", "devinfo", "agent"))
			server.objects["network-attachment-definitions"] = append(server.objects["network-attachment-definitions"], definition("lan", test.config))
			tool, stdout, stderr := server.tool(t)
			tool.answer(`{"attachments": [` + test.records + `]}`)
			code := tool.run(t.Context(), strings.Fields(test.args)...)
			// A note would repeat the problem, which both outputs show.
			if code != test.code || !strings.Contains(stdout.String(), test.want) || strings.Contains(stderr.String(), "to see the problem") {
				t.Errorf("exit code %d: %s%s", code, stdout, stderr)
			}
			for _, r := range server.requests {
				if strings.Contains(r, "secrets") {
					t.Errorf("asked: %s", r)
				}
			}
		})
	}
}
