package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/remotecommand"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/test/difftest"
)

func (t *tool) run(ctx context.Context, args ...string) (code int) {
	root := t.root()
	root.SetArgs(args)
	return t.report(root.ExecuteContext(ctx))
}

// run runs the program in a cluster with these objects.
func run(t *testing.T, objects []runtime.Object, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	tool, out, errOut := newAPIServer(t, objects...).tool(t)
	code = tool.run(t.Context(), args...)
	return code, out.String(), errOut.String()
}

func only(object runtime.Object) []runtime.Object { return []runtime.Object{object} }

// pod returns a pod on a node with this network-status.
func pod(namespace, name, node, status string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(namespace + name), Annotations: map[string]string{cluster.StatusAnnotation: status},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
}

func dpdk() *corev1.Pod {
	return pod("default", "dpdk-0", "n1", `[{"name": "sriov-net", "interface": "net1", "mac": "02:00:00:00:00:01", "dns": {},
		"device-info": {"type": "pci", "version": "1.1.0",
		"pci": {"pci-address": "0000:03:00.5", "pf-pci-address": "0000:03:00.0", "representor-device": "eth7"}}}]`)
}

// The expected table is the example in the documentation.
func TestTableNamesDeviceOfEachAttachment(t *testing.T) {
	const prompt = "$ kubectl devinfo -A\n"
	want := strings.TrimPrefix(difftest.Block(t, "../../docs", "console", prompt), prompt)
	code, stdout, stderr := run(t, append(byClaim(), dpdk()), "-A")
	difftest.Equal(t, stdout, want)
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestPodCommandPrintsAllFields(t *testing.T) {
	code, stdout, _ := run(t, only(dpdk()), "pod", "dpdk-0")
	want := `net1
  network       sriov-net
  type          pci
  device        0000:03:00.5
  pf            0000:03:00.0
  representor   eth7
  node          n1
  mac           02:00:00:00:00:01
  device information:
    {
      "type": "pci",
      "version": "1.1.0",
      "pci": {
        "pci-address": "0000:03:00.5",
        "pf-pci-address": "0000:03:00.0",
        "representor-device": "eth7"
      }
    }
`
	difftest.Equal(t, stdout, want)
	difftest.Same(t, "exit code", code, 0)
}

// A "-" may also stand for a device that cannot be read, so a note explains it.
func TestUnreadableDevicesAreNoted(t *testing.T) {
	bad := dpdk()
	bad.Annotations[cluster.StatusAnnotation] = `[{"name": "a", "interface": "net1", "device-info": {"type": "pci", "version": "9"}}]`
	const note = "note: a network of default/dpdk-0 has no known device; use -o wide to see the problem\n"
	if code, stdout, stderr := run(t, only(bad)); code != 0 || stdout == "" || stderr != note {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if code, _, stderr := run(t, only(bad), "holder", "03:00.5"); code != clierr.Blind || !strings.HasPrefix(stderr, note) {
		t.Errorf("whose it is: exit code %d: %s", code, stderr)
	}
}

// The author of a pod controls its annotations, and a node may be another's.
func TestTextsFromOutsideDoNotReachTerminalRaw(t *testing.T) {
	const evil = difftest.Unprintable
	status, _ := json.Marshal([]any{map[string]any{"name": "a" + evil, "interface": "net\n1" + evil, "mac": evil, "ips": []string{evil},
		"device-info": map[string]any{"type": "memif", "version": "1.1.0", "memif": map[string]string{"role": evil, "path": "/a" + evil}}}})
	objects := []runtime.Object{pod("default", "dpdk-0", "n1", string(status)), pod("default", "dpdk-1", "n1", "no JSON: "+evil)}
	for _, line := range []string{"", "-o wide", "-A -o json", "-o yaml", "pod dpdk-0", "pod dpdk-1", "pod X", "holder X", "holder a --node X", "-l X", "X", "--X", "-n X", "doctor X", "__complete pod X"} {
		args := strings.Fields(strings.ReplaceAll(line, "X", evil))
		_, stdout, stderr := run(t, objects, args...)
		if raw := difftest.Raw(stdout + stderr); raw != "" {
			t.Errorf("%q prints %q in %q", line, raw, stdout+stderr)
		}
		if strings.HasSuffix(line, "json") && !json.Valid([]byte(stdout)) {
			t.Errorf("%q prints invalid JSON: %q", line, stdout)
		}
	}
	if _, stdout, _ := run(t, objects, "-o", "wide"); !strings.Contains(stdout, `net\u000a1\u001b[31m\u0007\u009b31m\u202e`) {
		t.Errorf("the characters are not escaped: %q", stdout)
	}
}

func TestEndedPodHoldsNoDevice(t *testing.T) {
	job := dpdk()
	job.Status.Phase = corev1.PodSucceeded
	if code, stdout, stderr := run(t, only(job), "pod", "dpdk-0"); code != 1 || stdout != "" || !strings.Contains(stderr, "has ended (Succeeded)") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestJSONListsAttachments(t *testing.T) {
	_, stdout, _ := run(t, only(dpdk()), "-o", "json")
	var got struct{ Attachments []cluster.Network }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got.Attachments) != 1 || got.Attachments[0].Device.Device != "0000:03:00.5" {
		t.Errorf("%v: %s", err, stdout)
	}
	plain := dpdk()
	plain.Annotations = nil
	for _, args := range []string{"", "pod dpdk-0", "holder 03:00.6"} {
		if _, stdout, _ := run(t, only(plain), append(strings.Fields(args), "-o", "json")...); strings.Join(strings.Fields(stdout), "") != `{"attachments":[]}` {
			t.Errorf("%s of nothing: %s", args, stdout)
		}
	}
}

func TestShellCompletesPodsNodesAndFlags(t *testing.T) {
	objects := []runtime.Object{dpdk(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}
	for args, want := range map[string]string{"pod ": "dpdk-0\n:4\n", "doctor ": "n1\n:4\n", "holder x --node ": "n1\n:4\n", "-n ": "shop\n:4\n", "-o ": "wide\njson\nyaml\n:4\n", "pod dpdk-0 ": ":4\n"} {
		if code, stdout, stderr := run(t, objects, append([]string{"__complete"}, strings.Split(args, " ")...)...); code != 0 || stdout != want {
			t.Errorf("%q: exit code %d: %s%s", args, code, stdout, stderr)
		}
	}
}

func TestHolderListsPodsWithTheDevice(t *testing.T) {
	objects := append(byClaim(), dpdk())
	for device, want := range map[string]string{"03:00.5": "default   dpdk-0 ", "3b:00.2": "shop   web "} {
		code, stdout, stderr := run(t, objects, "holder", device, "--node", "n1", "--no-headers")
		if code != 0 || !strings.HasPrefix(stdout, want) || stderr != "" {
			t.Errorf("%s: exit code %d: %s%s", device, code, stdout, stderr)
		}
	}
	code, stdout, stderr := run(t, only(dpdk()), "holder", "03:00.6")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "No pod has 03:00.6") {
		t.Errorf("device without holder: exit code %d: %s%s", code, stdout, stderr)
	}
}

const driver = "cni.dra.networking.x-k8s.io"

// byClaim returns a pod and its claim.
func byClaim() []runtime.Object {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "7"}, Spec: corev1.PodSpec{
		NodeName: "n1", ResourceClaims: []corev1.PodResourceClaim{{Name: "net", ResourceClaimName: new("blue")}},
	}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "blue"}, Status: resourceapi.ResourceClaimStatus{
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "web", UID: "7"}},
		Devices: []resourceapi.AllocatedDeviceStatus{{
			Driver: driver, Pool: "n1", Device: "pci-0000-3b-00-2", NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1"},
			Data: &runtime.RawExtension{Raw: []byte(`{"devinfo-cni.io/device": {"type": "pci", "device": "0000:3b:00.2"}}`)},
		}},
	}}
	return []runtime.Object{pod, claim}
}

func TestForbiddenClaimsAreAWarning(t *testing.T) {
	server := newAPIServer(t, append(byClaim(), dpdk())...)
	server.forbidden = "resourceclaims"
	tool, stdout, stderr := server.tool(t)
	code := tool.run(t.Context(), "-A")
	if code != 0 || !strings.Contains(stdout.String(), "dpdk-0") || !strings.HasPrefix(stderr.String(), "warning: cannot read resource claims, so devices of claims are not shown: ") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestErrorsNameTheMistake(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		says string
		code int
	}{
		"no device":      {[]string{"holder"}, "DEVICE is missing", clierr.Usage},
		"empty device":   {[]string{"holder", ""}, "DEVICE is empty", clierr.Usage},
		"pods by name":   {[]string{"pods", "web"}, "list: unexpected argument \"web\"\n  see kubectl devinfo list --help", clierr.Usage},
		"no selector":    {[]string{"-l", "a==,"}, "--selector: ", clierr.Usage},
		"no node":        {[]string{"doctor"}, "NODE is missing", clierr.Usage},
		"no agent":       {[]string{"doctor", "n1"}, "no pod of devinfo-agent", clierr.Blind},
		"no such node":   {[]string{"capture", "n2"}, `nodes "n2" not found`, clierr.Blind},
		"no such pod":    {[]string{"pod", "web"}, `pods "web" not found`, clierr.Blind},
		"unknown format": {[]string{"-o", "xml"}, "--output: unknown value \"xml\"\n  give one of wide, json, yaml", clierr.Usage},
		"no such pods":   {[]string{"pod", "web", "-o", "xml"}, "--output", clierr.Usage}, // before any request
		"unknown flag":   {[]string{"--nodes"}, "--nodes", clierr.Usage},
		"unknown verb":   {[]string{"holdr"}, "unknown command \"holdr\"\n  did you mean holder? See kubectl devinfo --help\n", clierr.Usage},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			code, stdout, stderr := run(t, []runtime.Object{dpdk(), node}, test.args...)
			if code != test.code || stdout != "" || !strings.Contains(stderr, test.says) {
				t.Errorf("exit code %d: %s%s", code, stdout, stderr)
			}
		})
	}
}

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
	crashed := agent("cni-dra-driver", "devinfo", "a")
	crashed.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
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
		"driver crashes":   {[]runtime.Object{crashed, agent("devinfo-agent", "devinfo", "b")}, "doctor n1", "devinfo/b /devinfoctl doctornote: the container of pod devinfo/a on node n1 does not run: kubectl -n devinfo logs a "},
		"only it, crashes": {[]runtime.Object{crashed}, "doctor n1", "does not run: kubectl -n devinfo logs a "},
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
func TestControlCharactersFromNodeAreEscaped(t *testing.T) {
	for args, want := range map[string]string{"doctor n1": "ok\n\\u001b[31m\\u0007", "capture n1": "ok\n\x1b[31m\a"} { // a capture is a file
		tool, stdout, stderr := newAPIServer(t, agent("devinfo-agent", "devinfo", "a")).tool(t)
		tool.exec = func(_ context.Context, _ *corev1.Pod, _ []string, streams remotecommand.StreamOptions) error {
			_, errOut := fmt.Fprint(streams.Stderr, "warning\a\n")
			_, err := fmt.Fprint(streams.Stdout, "ok\n\x1b[31m\a")
			return errors.Join(errOut, err)
		}
		if code := tool.run(t.Context(), strings.Fields(args)...); code != 0 || stdout.String() != want || stderr.String() != "warning\\u0007\n" {
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
		"a list":           {objects, "-A", 0, "net1        ?      ?        ?     ?             ?      -       n1", "note: the devices shown as ? are not in the API, and these nodes were not queried: n1, n2; pod NAME or holder", 0},
		"of a node":        {objects, "-A --node n1", 0, "?", "these nodes were not queried: n1; ", 0},
		"in JSON":          {objects, "-A -o json", 0, `"notAsked": true`, "were not queried", 0},
		"holder of a node": {objects, "holder /run/m --node n1", 0, "vpp-n1", "", 1},
		"holder of all":    {many, "holder /run/none", 3, "", "kubectl devinfo: no pod among the queried ones has /run/none", 0},
		"one pod":          {objects, "pod vpp-n1 -n shop", 0, "device    /run/m", "", 1},
		"its information":  {objects, "pod vpp-n1 -n shop", 0, `"role": "master",`, "", 1},
		"pod, silent":      {objects, "pod vpp-n2 -n shop", 3, "device        ?", "node n2 did not answer: no pod of devinfo-agent", 0},
		"many":             {many, "-A", 0, "vpp-n19", "n00, n01, n02, n03, n04 and 15 more", 0},
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
		"of a node not asked": {"shop/lan", chain(`, "deviceInfoFile": "auto", "deviceInfofile": "auto"`), "-n shop -o wide", "", 0, typo},
		"no capability":       {"lan", chain(``), "pod a -n shop", "", 0, "network shop/lan: spec.config.plugins[1].deviceInfoFile: must be \"auto\", or the"},
		"no resourceName":     {"lan", chain(`, "capabilities": {"CNIDeviceInfoFile": true}`), "pod a -n shop", "", 0, "network shop/lan: spec.config.plugins[1].deviceInfoFile: should be \"auto\""},
		"above a veth":        {"lan", chain(`, "deviceInfoFile": "auto"`), "pod a -n shop", recorded, 0, "problem   no device found for interface net1: name one"},
		"a typo, recorded":    {"lan", chain(`, "deviceInfoFile": "auto", "deviceInfofile": "auto"`), "pod a -n shop", recorded, 0, typo + "; node n1: no device found for interface net1: name one"},
		"not recorded":        {"lan", chain(`, "deviceInfoFile": "auto"`), "pod a -n shop", "", 0, node},
		"unknown":             {"lan", chain(`, "deviceInfoFile": "auto"`), "-n shop -o wide", "", 0, ""},
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
