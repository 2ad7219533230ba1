package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/cluster"
	"devinfo-cni.io/pkg/ctl/clierr"
	"devinfo-cni.io/pkg/difftest"
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
	_, want, _ := strings.Cut(difftest.Read(t, "../../docs/debugging.md"), "$ kubectl devinfo -A\n")
	want, _, _ = strings.Cut(want, "```")
	objects := append(byClaim(), dpdk())
	status := &objects[1].(*resourceapi.ResourceClaim).Status.Devices[0]
	status.Data = &runtime.RawExtension{Raw: []byte(`{"devinfo-cni.io/device": {"type": "pci", "device": "0000:3b:00.2"}}`)}
	code, stdout, stderr := run(t, objects, "-A")
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
  source        network-status
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

// The author of a pod controls its annotations.
func TestControlCharactersInPodAreReplaced(t *testing.T) {
	evil := dpdk()
	evil.Annotations[cluster.StatusAnnotation] = `[{"name": "a\u001b\u0007\nb", "interface": "net\n1", "device-info": {"type": "memif", "version": "1.1.0", "memif": {"role": "\u001b", "path": "/a\u0007"}}}]`
	for _, args := range []string{"-o wide", "pod dpdk-0"} {
		code, stdout, _ := run(t, only(evil), strings.Fields(args)...)
		if code != 0 || strings.ContainsAny(stdout, "\a\x1b") || !strings.Contains(stdout, "a���b") || !strings.Contains(stdout, "net�1") {
			t.Errorf("%s: exit code %d: %q", args, code, stdout)
		}
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
	for args, want := range map[string]string{"pod ": "dpdk-0\n:4\n", "doctor ": "n1\n:4\n", "holder x --node ": "n1\n:4\n", "-n ": "shop\n:4\n", "-o ": "wide\njson\nyaml\nname\n:4\n", "--from-nodes ": "auto\nnever\nalways\n:4\n", "pod dpdk-0 ": ":4\n"} {
		if code, stdout, stderr := run(t, objects, append([]string{"__complete"}, strings.Split(args, " ")...)...); code != 0 || stdout != want {
			t.Errorf("%q: exit code %d: %s%s", args, code, stdout, stderr)
		}
	}
}

// Pods of the same name may exist in several namespaces.
func TestNamesArePrintedOnceForEachPod(t *testing.T) {
	const two = `[{"name": "b", "interface": "net1"}, {"name": "a", "interface": "net2"}]`
	objects := []runtime.Object{dpdk(), pod("y", "web", "n1", two), pod("x", "web", "n1", two)}
	for args, want := range map[string]string{"-n x": "pod/web\n", "-A": "pod/dpdk-0\npod/web\npod/web\n"} {
		code, stdout, stderr := run(t, objects, append(strings.Fields(args), "-o", "name", "--from-nodes=never")...)
		if code != 0 || stdout != want || stderr != "" {
			t.Errorf("%s: exit code %d: %s%s", args, code, stdout, stderr)
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
	if code, _, stderr := run(t, objects, "holder", "3b:00.2"); code != clierr.Blind || !strings.HasPrefix(stderr, "note: the status of claims of "+driver+" does not name the device") {
		t.Errorf("of all nodes: exit code %d: %s", code, stderr)
	}
	code, stdout, stderr := run(t, only(dpdk()), "holder", "03:00.6")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "No pod has 03:00.6") {
		t.Errorf("device without holder: exit code %d: %s%s", code, stdout, stderr)
	}
}

const driver = "cni.dra.networking.x-k8s.io"

// byClaim returns a pod, its claim, and the slice. Only the slice names the VF.
func byClaim() []runtime.Object {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "7"}, Spec: corev1.PodSpec{
		NodeName: "n1", ResourceClaims: []corev1.PodResourceClaim{{Name: "net", ResourceClaimName: new("blue")}},
	}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "blue"}, Status: resourceapi.ResourceClaimStatus{
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "web", UID: "7"}},
		Devices: []resourceapi.AllocatedDeviceStatus{{
			Driver: driver, Pool: "n1", Device: "pci-0000-3b-00-2", NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1"},
		}},
	}}
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{
		NodeName: new("n1"), Driver: driver, Pool: resourceapi.ResourcePool{Name: "n1"}, Devices: []resourceapi.Device{{
			Name: "pci-0000-3b-00-2", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"resource.kubernetes.io/pciBusID": {StringValue: new("0000:3b:00.2")}},
		}},
	}}
	return []runtime.Object{pod, claim, slice}
}

func TestForbiddenResourceIsAWarning(t *testing.T) {
	for resource, want := range map[string]struct{ args, shown, warning string }{
		"resourceslices": {"pod web -n shop", "blue", "warning: cannot read ResourceSlices: for claims, only devices in the claim status are shown: "},
		"resourceclaims": {"-A", "dpdk-0", "warning: cannot read resource claims, so devices of claims are not shown: "},
	} {
		server := newAPIServer(t, append(byClaim(), dpdk())...)
		server.forbidden = resource
		tool, stdout, stderr := server.tool(t)
		code := tool.run(t.Context(), strings.Fields(want.args)...)
		if code != 0 || !strings.Contains(stdout.String(), want.shown) || !strings.HasPrefix(stderr.String(), want.warning) {
			t.Errorf("%s: exit code %d: %s%s", resource, code, stdout, stderr)
		}
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
		"unknown format": {[]string{"-o", "xml"}, "--output: unknown value \"xml\"\n  give one of wide, json, yaml, name", clierr.Usage},
		"no such pods":   {[]string{"pod", "web", "-o", "xml"}, "--output", clierr.Usage}, // before any request
		"from nowhere":   {[]string{"--from-nodes", "some"}, "--from-nodes", clierr.Usage},
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
