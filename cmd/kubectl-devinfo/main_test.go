package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
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

func TestCommandsInDocumentationExist(t *testing.T) {
	for _, args := range difftest.Commands(t, "kubectl devinfo", "../../README.md", "../../SECURITY.md", "../../docs") {
		if code, _, stderr := run(t, nil, append(args, "--help")...); code != 0 {
			t.Errorf("kubectl devinfo %s: %s", strings.Join(args, " "), stderr)
		}
	}
}

// The author of a pod controls its annotations, and a node may be another's.
func TestTextsFromOutsideDoNotReachTerminalRaw(t *testing.T) {
	const evil = difftest.Unprintable
	status, _ := json.Marshal([]any{map[string]any{"name": "a" + evil, "interface": "net\n1" + evil, "mac": evil, "ips": []string{evil},
		"device-info": map[string]any{"type": "memif", "version": "1.1.0", "memif": map[string]string{"role": evil, "path": "/a" + evil}}}})
	objects := []runtime.Object{agent("devinfo-agent", "devinfo", "a"), pod("default", "dpdk-0", "n1", string(status)), pod("default", "dpdk-1", "n1", "no JSON: "+evil)}
	for _, line := range []string{"", "-o wide", "-A -o json", "-o yaml", "pod dpdk-0", "pod dpdk-1", "pod X", "holder X", "holder a --node X", "-l X", "X", "--X", "-n X", "doctor X", "doctor n1", "__complete pod X"} {
		tool, stdout, stderr := newAPIServer(t, objects...).tool(t)
		tool.answer(evil+"\n", evil+"\n", nil) // another user may control the pod
		tool.run(t.Context(), strings.Fields(strings.ReplaceAll(line, "X", evil))...)
		difftest.NotRaw(t, line, stdout.String()+stderr.String())
		if strings.HasSuffix(line, "json") && !json.Valid(stdout.Bytes()) {
			t.Errorf("%q prints invalid JSON: %q", line, stdout)
		}
	}
	_, stdout, _ := run(t, objects, "-o", "wide")
	difftest.Contains(t, stdout, `net\u000a1\u001b[31m\u0007\u009b31m\u202e`)
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

// A Kubernetes before 1.34 has no claims that could be missed. More than 50 claims are listed.
func TestForbiddenClaimsAreAWarning(t *testing.T) {
	for _, objects := range [][]runtime.Object{append(byClaim(), dpdk()), append(fleet(11), dpdk())} {
		for _, forbidden := range []bool{true, false} {
			server := newAPIServer(t, objects...)
			if server.unknown = "resourceclaims"; forbidden {
				server.forbidden = server.unknown
			}
			tool, stdout, stderr := server.tool(t)
			code := tool.run(t.Context(), "-A")
			if code != 0 || !strings.Contains(stdout.String(), "dpdk-0") || strings.HasPrefix(stderr.String(), "warning: cannot read resource claims, so devices of claims are not shown: ") != forbidden {
				t.Errorf("exit code %d: %s%s", code, stdout, stderr)
			}
		}
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

// An answer is what devinfoctl prints in the agents' pods.
type answer struct {
	stdout, stderr string
	failure        error
}

// answer makes the agents' pods give one answer to each command. It returns the commands.
func (t *tool) answer(stdout, stderr string, failure error) (calls *[]string) {
	return t.answers(map[string]answer{"": {stdout, stderr, failure}})
}

// answers is like answer, with answers by subcommand. "" stands for all others.
func (t *tool) answers(by map[string]answer) (calls *[]string) {
	calls = new([]string)
	t.exec = func(_ context.Context, pod *corev1.Pod, command []string, streams remotecommand.StreamOptions) error {
		*calls = append(*calls, pod.Namespace+"/"+pod.Name+" "+strings.Join(command, " "))
		a, special := by[command[1]]
		if !special {
			a = by[""]
		}
		_, outErr := io.WriteString(streams.Stdout, a.stdout)
		_, errErr := io.WriteString(streams.Stderr, a.stderr)
		return errors.Join(outErr, errErr, a.failure)
	}
	return calls
}

// answerIn reads a section "node", "node COMMAND" or "node COMMAND exit N", whose lines that begin with "!" are of standard
// error. After "node refused" and "node reset" there is no answer.
func answerIn(f *txtar.File) (command string, a answer) {
	for line := range strings.Lines(string(f.Data)) {
		if said, is := strings.CutPrefix(line, "! "); is {
			a.stderr += said
		} else {
			a.stdout += line
		}
	}
	name, exit, exits := strings.Cut(strings.TrimPrefix(f.Name, "node"), "exit ")
	switch command = strings.TrimSpace(name); {
	case exits:
		code, _ := strconv.Atoi(exit)
		a.failure = exec.CodeExitError{Err: errors.New("exit"), Code: code}
	case command == "refused":
		command, a.failure = "", apierrors.NewForbidden(schema.GroupResource{Resource: "pods/exec"}, "a", errors.New("made up"))
	case command == "reset":
		command, a.failure = "", errors.New("connection reset by peer")
	}
	return command, a
}

// Each file has the objects of a cluster, then commands with their output. The section "forbidden" names a resource that
// cannot be read, and those that begin with "node" are what devinfoctl prints in the agents' pods: see answerIn. A line of
// output that begins with ">" is a command in such a pod, which is root on its node, and one that begins with "!" is of
// standard error.
func TestCommandsPrintRecordedOutput(t *testing.T) {
	goldentest.Archives(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		var server *apiServer
		answers := map[string]answer{}
		for n := range archive.Files {
			f := &archive.Files[n]
			line, isCommand := strings.CutPrefix(f.Name, "kubectl devinfo")
			switch {
			case f.Name == "objects":
				server = newAPIServer(t, decoded(t, string(f.Data))...)
			case f.Name == "forbidden":
				server.forbidden = strings.TrimSpace(string(f.Data))
			case strings.HasPrefix(f.Name, "node"):
				command, a := answerIn(f)
				answers[command] = a
			case isCommand:
				goldentest.Section(t, f, server.seen(t, answers, strings.Fields(line)))
			default:
				t.Errorf("section %s", f.Name)
			}
		}
		difftest.Lacks(t, strings.Join(server.requests, "\n"), "secrets")
	})
}

// seen runs the program, and returns what it asks of the nodes and what a terminal shows. The argument "" is empty.
func (s *apiServer) seen(t *testing.T, answers map[string]answer, args []string) string {
	t.Helper()
	for n := range args {
		args[n] = strings.Trim(args[n], `"`)
	}
	tool, stdout, stderr := s.tool(t)
	asked := tool.answers(answers)
	code := tool.run(t.Context(), args...)
	var b strings.Builder
	for _, command := range *asked {
		fmt.Fprintf(&b, "> %s\n", command)
	}
	b.WriteString(stdout.String())
	if stdout.Len() > 0 && !strings.HasSuffix(stdout.String(), "\n") { // of a template
		b.WriteString("\n")
	}
	for line := range strings.Lines(stderr.String()) {
		b.WriteString("! " + line)
	}
	if code != 0 {
		fmt.Fprintf(&b, "exit %d\n", code)
	}
	return b.String()
}

// decoded returns the objects of YAML documents.
func decoded(t *testing.T, documents string) (objects []runtime.Object) {
	t.Helper()
	for text := range strings.SplitSeq(documents, "---\n") {
		data, err := yaml.YAMLToJSON([]byte(text))
		difftest.Must(t, err)
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
		if runtime.IsNotRegisteredError(err) { // a NetworkAttachmentDefinition
			object, _, err = unstructured.UnstructuredJSONScheme.Decode(data, nil, nil)
		}
		difftest.Must(t, err)
		objects = append(objects, object)
	}
	return objects
}

// An API server that does not answer is reported in the words that people know from kubectl.
func TestUnreachableServerIsReportedInKubectlsWords(t *testing.T) {
	server := newAPIServer(t)
	server.Close()
	for _, args := range []string{"-A", "pod web", "doctor n1", "holder eth0"} {
		tool, stdout, stderr := server.tool(t)
		code := tool.run(t.Context(), strings.Fields(args)...)
		if code != clierr.Blind || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "kubectl devinfo: Unable to connect to the server: dial tcp "+server.Listener.Addr().String()) {
			t.Errorf("%s: exit code %d: %q", args, code, stderr)
		}
	}
	for _, resource := range []string{"pod", "doctor"} {
		tool, stdout, _ := server.tool(t)
		tool.run(t.Context(), "__complete", resource, "")
		difftest.Same(t, "completion of "+resource, stdout.String(), ":1\n") // an error
	}
	broken := filepath.Join(t.TempDir(), "config")
	difftest.Write(t, broken, "{", 0o600)
	for _, args := range []string{"-A", "list", "pod web", "__complete pod "} {
		tool, stdout, stderr := server.tool(t)
		*tool.config.KubeConfig = broken
		code := tool.run(t.Context(), strings.Split(args, " ")...)
		if completes := stdout.String() == ":1\n"; !completes && (code != clierr.Blind || stdout.Len() > 0 || !strings.Contains(stderr.String(), "error loading config file")) {
			t.Errorf("%s: exit code %d: %q%q", args, code, stdout, stderr)
		}
	}
}

// A capture is kept even if devinfoctl calls it incomplete, and replaces no file. What breaks off is no capture.
func TestCaptureIsWrittenToFile(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		err  error
		code int
		kept bool
	}{
		"none/dir":   {nil, clierr.Blind, false},
		"empty":      {nil, clierr.Blind, false},
		"complete":   {nil, 0, true},
		"incomplete": {exec.CodeExitError{Err: errors.New("exit"), Code: clierr.Blind}, clierr.Blind, true},
		"broken off": {errors.New("connection reset by peer"), clierr.Blind, false},
	} {
		tool, stdout, _ := newAPIServer(t, agent("devinfo-agent", "devinfo", "a")).tool(t)
		answer := map[bool]string{false: "n1: \x1b\n"}[name == "empty"]
		tool.answer(answer, "", test.err)
		file := filepath.Join(dir, name)
		code := tool.run(t.Context(), "capture", "n1", "-o", file)
		text, err := os.ReadFile(file)
		if code != test.code || stdout.Len() > 0 || (err == nil) != test.kept || err == nil && string(text) != answer {
			t.Errorf("%s: exit code %d, %q, %v", name, code, text, err)
		}
		if code := tool.run(t.Context(), "capture", "n1", "-o", file); test.kept && code != clierr.Usage {
			t.Errorf("%s: exit code %d where the file exists", name, code)
		}
		t.Chdir(dir)
		tool.run(t.Context(), "capture", "n1", "-o", "-") // as devinfoctl capture takes it
		if _, err := os.Lstat("-"); err == nil || stdout.String() != answer {
			t.Errorf("%s: to standard output: %q", name, stdout)
		}
	}
}

func TestRequestRateIsKubectls(t *testing.T) {
	tool, _, _ := newAPIServer(t).tool(t)
	difftest.Must(t, tool.connect())
	limit := tool.api.CoreV1().RESTClient().GetRateLimiter()
	for range 300 {
		if !limit.TryAccept() || limit.QPS() < 50 {
			t.Fatalf("%v requests per second", limit.QPS())
		}
	}
}
