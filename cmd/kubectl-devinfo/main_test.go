package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"devinfo-cni.io/pkg/cluster"
	"devinfo-cni.io/pkg/ctl/remedy"
	"devinfo-cni.io/pkg/difftest"
)

// toolFor is the program on a cluster, and its standard error.
func toolFor(t *testing.T, client *fake.Clientset) (*tool, *bytes.Buffer) {
	t.Helper()
	t.Setenv("KUBECONFIG", "/nonexistent")
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	tool := newTool(streams)
	tool.client = func() (kubernetes.Interface, error) { return client, nil }
	return tool, errOut
}

// run runs the program.
func (t *tool) run(ctx context.Context, args ...string) (code int) {
	root := t.root()
	root.SetArgs(args)
	return t.report(root.ExecuteContext(ctx))
}

// run is the program on a cluster that holds these objects.
func run(t *testing.T, client *fake.Clientset, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	tool, errOut := toolFor(t, client)
	code = tool.run(t.Context(), args...)
	return code, tool.Out.(*bytes.Buffer).String(), errOut.String()
}

func dpdk() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dpdk-0", UID: "1", Annotations: map[string]string{
			cluster.StatusAnnotation: `[{"name": "sriov-net", "interface": "net1", "mac": "02:00:00:00:00:01", "dns": {},
				"device-info": {"type": "pci", "version": "1.1.0",
				"pci": {"pci-address": "0000:03:00.5", "pf-pci-address": "0000:03:00.0", "representor-device": "eth7"}}}]`,
		}},
		Spec: corev1.PodSpec{NodeName: "n1"},
	}
}

// The table is the documentation's.
func TestTheTableNamesTheDeviceOfEachAttachment(t *testing.T) {
	page, err := os.ReadFile("../../docs/debugging.md")
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(page), "$ kubectl devinfo -A\n")
	want, _, _ = strings.Cut(want, "```")
	code, stdout, stderr := run(t, fake.NewClientset(append(byClaim(), dpdk())...), "-A")
	if diff := cmp.Diff(want, stdout); diff != "" || code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q (-want +got):\n%s", code, stderr, diff)
	}
}

func TestOnePodIsToldInFull(t *testing.T) {
	code, stdout, _ := run(t, fake.NewClientset(dpdk()), "pod", "dpdk-0")
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
	if diff := cmp.Diff(want, stdout); diff != "" || code != 0 {
		t.Errorf("exit code %d (-want +got):\n%s", code, diff)
	}
}

// A "-" that means something else than that there is no device.
func TestDevicesThatCannotBeReadAreNoted(t *testing.T) {
	bad := dpdk()
	bad.Annotations[cluster.StatusAnnotation] = `[{"name": "a", "interface": "net1", "device-info": {"type": "pci", "version": "9"}}]`
	const note = "note: the devices of default/dpdk-0 are not known: -o wide says why\n"
	if code, stdout, stderr := run(t, fake.NewClientset(bad)); code != 0 || stdout == "" || stderr != note {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if code, _, stderr := run(t, fake.NewClientset(bad), "who", "03:00.5"); code != remedy.Blind || !strings.HasPrefix(stderr, note) {
		t.Errorf("whose it is: exit code %d: %s", code, stderr)
	}
}

func TestAPodThatEndedHoldsNoDevice(t *testing.T) {
	job := dpdk()
	job.Status.Phase = corev1.PodSucceeded
	if code, stdout, stderr := run(t, fake.NewClientset(job), "pod", "dpdk-0"); code != 1 || stdout != "" || !strings.Contains(stderr, "has ended (Succeeded)") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestJSONIsTheListOfAttachments(t *testing.T) {
	_, stdout, _ := run(t, fake.NewClientset(dpdk()), "-o", "json")
	var got struct{ Attachments []cluster.Network }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got.Attachments) != 1 || got.Attachments[0].Device != "0000:03:00.5" {
		t.Errorf("%v: %s", err, stdout)
	}
	plain := dpdk()
	plain.Annotations = nil
	for _, args := range []string{"", "pod dpdk-0", "who 03:00.6"} {
		if _, stdout, _ := run(t, fake.NewClientset(plain), append(strings.Fields(args), "-o", "json")...); strings.Join(strings.Fields(stdout), "") != `{"attachments":[]}` {
			t.Errorf("%s of nothing: %s", args, stdout)
		}
	}
}

// What is watched comes once, and again only when it is another.
func TestWatchShowsWhatComesAndChanges(t *testing.T) {
	late, status := dpdk(), dpdk().Annotations
	late.Annotations = nil
	client := fake.NewClientset(late)
	pods := watch.NewFake()
	client.PrependWatchReactor("pods", kubetesting.DefaultWatchReactor(pods, nil))
	tool, errOut := toolFor(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		late.Annotations = status
		for range 2 {
			pods.Modify(late)
		}
		changed := late.DeepCopy()
		changed.Annotations[cluster.StatusAnnotation] = strings.ReplaceAll(status[cluster.StatusAnnotation], "03:00.5", "03:00.6")
		pods.Modify(changed)
		pods.Delete(changed)
		cancel()
		pods.Stop()
	}()
	code := tool.run(ctx, "-w")
	const want = `POD      NETWORK     INTERFACE   TYPE   DEVICE         PF             REPRESENTOR   RDMA   CLAIM   NODE
dpdk-0   sriov-net   net1        pci    0000:03:00.5   0000:03:00.0   eth7          -      -       n1
dpdk-0   sriov-net   net1        pci    0000:03:00.6   0000:03:00.0   eth7          -      -       n1
`
	if diff := cmp.Diff(want, tool.Out.(*bytes.Buffer).String()); diff != "" || code != 0 {
		t.Errorf("exit code %d, %s (-want +got):\n%s", code, errOut, diff)
	}
}

// As by SIGINT: the API's client then finds the stream of events broken.
func TestAWatchThatIsEndedIsNoError(t *testing.T) {
	client := fake.NewClientset(dpdk())
	ctx, cancel := context.WithCancel(t.Context())
	client.PrependWatchReactor("pods", func(kubetesting.Action) (bool, watch.Interface, error) {
		cancel()
		events := watch.NewFakeWithChanSize(1, false)
		events.Error(&apierrors.NewGenericServerResponse(500, "watch", schema.GroupResource{}, "", "unable to decode an event", 0, true).ErrStatus)
		return true, events, nil
	})
	tool, errOut := toolFor(t, client)
	if code := tool.run(ctx, "-w", "-o", "name"); code != 0 || errOut.Len() > 0 {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

// A watch begins where the list ended, the next where the last one did; and anew only if the API
// server has forgotten that.
func TestAWatchGoesOnWhereItWas(t *testing.T) {
	pod, client := dpdk(), fake.NewClientset()
	pod.Annotations = map[string]string{cluster.StatusAnnotation: `[{"name": "b", "interface": "net1"}, {"name": "a", "interface": "net2"}]`}
	client.PrependReactor("list", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Pod{*pod}}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var from []string
	client.PrependWatchReactor("pods", func(a kubetesting.Action) (bool, watch.Interface, error) {
		from = append(from, a.(kubetesting.WatchActionImpl).ListOptions.ResourceVersion)
		events := watch.NewFakeWithChanSize(3, false)
		switch len(from) {
		case 1:
			pod.ResourceVersion = "8"
			events.Modify(pod.DeepCopy()) // as it was
			events.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}})
		case 2:
			events.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
		case 3:
			cancel()
		}
		events.Stop()
		return true, events, nil
	})
	tool, errOut := toolFor(t, client)
	code := tool.run(ctx, "-w", "-o", "name", "--sort-by=network", "--from-nodes=never")
	if out := tool.Out.(*bytes.Buffer).String(); code != 0 || out != "pod/dpdk-0\n" || !slices.Equal(from, []string{"7", "9", ""}) {
		t.Errorf("exit code %d, watches from %q: %s%s", code, from, out, errOut)
	}
}

func TestTheShellCompletesPodsNodesAndFlags(t *testing.T) {
	client := fake.NewClientset(dpdk(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for args, want := range map[string]string{"pod ": "dpdk-0\n:4\n", "doctor ": "n1\n:4\n", "who x --node ": "n1\n:4\n", "-n ": "shop\n:4\n", "-o ": "wide\njson\nyaml\nname\n:4\n", "--from-nodes ": "auto\nnever\nalways\n:4\n", "pod dpdk-0 ": ":4\n"} {
		if code, stdout, stderr := run(t, client, append([]string{"__complete"}, strings.Split(args, " ")...)...); code != 0 || stdout != want {
			t.Errorf("%q: exit code %d: %s%s", args, code, stdout, stderr)
		}
	}
}

// A name is printed once for each pod, and another namespace may have a pod of that name.
func TestTheListIsSortedAsAskedAndGivesNames(t *testing.T) {
	pod := func(namespace, name, status string) *corev1.Pod {
		p := dpdk()
		p.Namespace, p.Name, p.UID = namespace, name, types.UID(namespace+name)
		p.Annotations = map[string]string{cluster.StatusAnnotation: status}
		return p
	}
	status := dpdk().Annotations[cluster.StatusAnnotation]
	const three = `[{"name": "b", "interface": "net1"}, {"name": "a", "interface": "net2"}, {"name": "c", "interface": "net3"}]`
	client := fake.NewClientset(pod("default", "aaa", strings.ReplaceAll(status, "03:00.5", "65:00.5")), dpdk(), pod("x", "web", three), pod("y", "web", three))
	for args, want := range map[string]string{
		"-o name":                                         "pod/aaa\npod/dpdk-0\n",
		"-o name --sort-by {.device}":                     "pod/dpdk-0\npod/aaa\n",
		"-o name --sort-by Device":                        "pod/dpdk-0\npod/aaa\n",
		"-o name --sort-by namespace":                     "pod/aaa\npod/dpdk-0\n",
		"-o name -A --from-nodes=never":                   "pod/aaa\npod/dpdk-0\npod/web\npod/web\n",
		"-A -o name --from-nodes=never --sort-by=network": "pod/web\npod/web\npod/aaa\npod/dpdk-0\n",
	} {
		if code, stdout, stderr := run(t, client, strings.Fields(args)...); code != 0 || stdout != want || stderr != "" {
			t.Errorf("%s: exit code %d: %s%s", args, code, stdout, stderr)
		}
	}
}

func TestWhoSaysWhoseDeviceItIs(t *testing.T) {
	client := fake.NewClientset(append(byClaim(), dpdk())...)
	for device, want := range map[string]string{"03:00.5": "default   dpdk-0 ", "3b:00.2": "shop   web "} {
		if code, stdout, stderr := run(t, client, "who", device, "--no-headers"); code != 0 || !strings.HasPrefix(stdout, want) {
			t.Errorf("%s: exit code %d: %s%s", device, code, stdout, stderr)
		}
	}
	code, stdout, stderr := run(t, fake.NewClientset(dpdk()), "who", "03:00.6")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "No pod has 03:00.6") {
		t.Errorf("nobody's: exit code %d: %s%s", code, stdout, stderr)
	}
}

// byClaim are a pod, its claim and the slice of a VF of which the CNI result says nothing.
func byClaim() []runtime.Object {
	const driver = "cni.dra.networking.x-k8s.io"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "7"}, Spec: corev1.PodSpec{
		NodeName: "n1", ResourceClaims: []corev1.PodResourceClaim{{Name: "net", ResourceClaimName: new("blue")}},
	}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "blue"}, Status: resourceapi.ResourceClaimStatus{
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "web", UID: "7"}},
		Devices: []resourceapi.AllocatedDeviceStatus{{
			Driver: driver, Pool: "n1", Device: "pci-0000-3b-00-2", NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1"},
		}},
	}}
	address := "0000:3b:00.2"
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: driver, Pool: resourceapi.ResourcePool{Name: "n1"}, Devices: []resourceapi.Device{{
			Name: "pci-0000-3b-00-2", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"resource.kubernetes.io/pciBusID": {StringValue: &address}},
		}},
	}}
	return []runtime.Object{pod, claim, slice}
}

func TestWhatMayNotBeReadIsAWarning(t *testing.T) {
	for resource, want := range map[string]struct{ shown, warning string }{
		"resourceslices": {"blue", "warning: of claims only the devices that their status names are shown: "},
		"resourceclaims": {"dpdk-0", "warning: resource claims are left out: "},
	} {
		client := fake.NewClientset(append(byClaim(), dpdk())...)
		client.PrependReactor("*", resource, func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
		})
		code, stdout, stderr := run(t, client, "-A")
		if code != 0 || !strings.Contains(stdout, want.shown) || !strings.HasPrefix(stderr, want.warning) {
			t.Errorf("%s: exit code %d: %s%s", resource, code, stdout, stderr)
		}
	}
}

func TestMistakesAreSaid(t *testing.T) {
	tool, _ := toolFor(t, nil)
	difftest.HelpFits(t, tool.root())
	for name, test := range map[string]struct {
		args []string
		says string
		code int
	}{
		"no device":      {[]string{"who"}, "DEVICE is missing", remedy.Usage},
		"empty device":   {[]string{"who", ""}, "DEVICE is empty", remedy.Usage},
		"pods by name":   {[]string{"pods", "web"}, "list: unexpected argument \"web\"\n  see kubectl devinfo list --help", remedy.Usage},
		"no selector":    {[]string{"-l", "a==,"}, "--selector: ", remedy.Usage},
		"no node":        {[]string{"doctor"}, "NODE is missing", remedy.Usage},
		"no agent":       {[]string{"doctor", "n1"}, "no pod of devinfo-agent", remedy.Blind},
		"no such node":   {[]string{"capture", "n2"}, `nodes "n2" not found`, remedy.Blind},
		"no such pod":    {[]string{"pod", "web"}, `pods "web" not found`, remedy.Blind},
		"unknown format": {[]string{"-o", "xml"}, "--output: unknown value \"xml\"\n  give wide, json, yaml or name", remedy.Usage},
		"no such pods":   {[]string{"pod", "web", "-o", "xml"}, "--output", remedy.Usage}, // before anybody is asked
		"by no column":   {[]string{"--sort-by", ".devices"}, "--sort-by: unknown column \".devices\"", remedy.Usage},
		"from nowhere":   {[]string{"--from-nodes", "some"}, "--from-nodes", remedy.Usage},
		"unknown flag":   {[]string{"--nodes"}, "--nodes", remedy.Usage},
		"unknown verb":   {[]string{"whoo"}, "unknown command \"whoo\"\n  did you mean who? See kubectl devinfo --help\n", remedy.Usage},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			code, stdout, stderr := run(t, fake.NewClientset(dpdk(), node), test.args...)
			if code != test.code || stdout != "" || !strings.Contains(stderr, test.says) {
				t.Errorf("exit code %d: %s%s", code, stdout, stderr)
			}
		})
	}
}
