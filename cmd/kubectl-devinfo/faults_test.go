package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/test/difftest"
)

// broken is a transport whose nth request fails.
type broken struct {
	http.RoundTripper
	nth  *int
	fail func(*http.Response) (*http.Response, error)
}

func (b broken) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if *b.nth--; *b.nth != 0 || err != nil {
		return answer, err
	}
	return b.fail(answer)
}

// status returns the fault that the API server answers with an error.
func status(code int) func(*http.Response) (*http.Response, error) {
	return func(r *http.Response) (*http.Response, error) {
		r.StatusCode, r.Body = code, io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"made up"}`))
		return r, nil
	}
}

var apiFaults = map[string]func(*http.Response) (*http.Response, error){
	"forbidden":         status(http.StatusForbidden),
	"unauthorized":      status(http.StatusUnauthorized),
	"server error":      status(http.StatusInternalServerError),
	"gateway timeout":   status(http.StatusGatewayTimeout),
	"connection broken": func(*http.Response) (*http.Response, error) { return nil, errors.New("connection reset by peer") },
	"cut off": func(r *http.Response) (*http.Response, error) {
		text, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(text[:len(text)/2]), iotest.ErrReader(io.ErrUnexpectedEOF)))
		return r, err
	},
}

// waiting returns a pod whose network has no device on record, and the network.
func waiting() []runtime.Object {
	network := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": map[string]any{"namespace": "default", "name": "sriov-net"},
		"spec": map[string]any{"config": `{"cniVersion": "1.1.0", "name": "sriov-net", "plugins": [{"type": "macvlan"}, {"type": "devinfo", "no-such": 1}]}`},
	}}
	return []runtime.Object{pod("default", "bare", "n1", `[{"name": "default/sriov-net", "interface": "net1", "dns": {}}]`), network}
}

// Each request fails once with each error. The program must then say so, unless its answer is the complete one.
func TestFailedRequestIsNotAnEmptyAnswer(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	server := newAPIServer(t, append(append(byClaim(), dpdk(), node, agent("devinfo-agent", "devinfo", "a")), waiting()...)...)
	for _, args := range []string{"-A", "-A -o wide", "pod web -n shop", "pod bare", "holder 0000:3b:00.2", "holder none --node n1", "doctor n1"} {
		ask := func(nth int, fail func(*http.Response) (*http.Response, error)) (code int, stdout, stderr string, asked bool) {
			tool, out, errOut := server.tool(t)
			tool.answer(`{"attachments": []}`, "", nil)
			tool.config.WrapConfigFn = func(c *rest.Config) *rest.Config {
				c.Wrap(func(to http.RoundTripper) http.RoundTripper { return broken{to, &nth, fail} })
				return c
			}
			code = tool.run(t.Context(), strings.Fields(args)...)
			return code, out.String(), errOut.String(), nth <= 0
		}
		wantCode, want, wantErr, _ := ask(0, nil)
		if wantCode > 3 || strings.Contains(wantErr, "warning") {
			t.Fatalf("%s: exit code %d: %s", args, wantCode, wantErr)
		}
		for name, fail := range apiFaults {
			for nth := 1; ; nth++ {
				code, stdout, stderr, asked := ask(nth, fail)
				if !asked {
					if nth == 1 {
						t.Fatalf("%s: no requests", args)
					}
					break
				}
				if says := stderr != wantErr && stderr != ""; (code != wantCode || stdout != want) && !says {
					t.Errorf("%s, request %d: %s: silent: exit code %d instead of %d", args, nth, name, code, wantCode)
					difftest.Same(t, args, stdout, want)
				}
			}
		}
	}
}

// What devinfoctl prints counts only as far as its exit code and its text allow.
func TestAnswerOfNodeIsJudged(t *testing.T) {
	server := newAPIServer(t, append(waiting(), agent("devinfo-agent", "devinfo", "a"))...)
	const record = `{"attachments": [{"namespace": "default", "pod": "bare", "interface": "net1", "type": "memif", "device": "/run/m", "state": "Ok"}]}`
	for name, test := range map[string]struct {
		code           int
		stdout, stderr string
		want           int
		shown, said    string
	}{
		"incomplete":         {clierr.Blind, record, "devinfoctl: list: some\n", 0, "/run/m", "note: node n1: devinfoctl: list: some\n"},
		"it has a problem":   {clierr.Found, record, "", 0, "/run/m", ""},
		"in no JSON":         {0, "POD", "", clierr.Blind, "?", "note: the devices shown as ? are unknown, because node n1 did not answer: devinfoctl on the node did not print an answer in JSON: "},
		"failed":             {clierr.Blind, "", "devinfoctl: no\n", clierr.Blind, "?", "did not answer: exit: devinfoctl: no\n"},
		"failed in silence":  {clierr.Blind, "", "", clierr.Blind, "?", "did not answer: exit\n"},
		"of another version": {clierr.Usage, record, "devinfoctl: unknown\n", clierr.Blind, "?", "did not answer: exit: devinfoctl: unknown\n"},
	} {
		tool, out, errOut := server.tool(t)
		var failure error
		if test.code != 0 {
			failure = exec.CodeExitError{Err: errors.New("exit"), Code: test.code}
		}
		tool.answer(test.stdout, test.stderr, failure)
		code := tool.run(t.Context(), "pod", "bare")
		if code != test.want || !strings.Contains(out.String(), test.shown) || !strings.Contains(errOut.String(), test.said) || test.said == "" && errOut.Len() > 0 {
			t.Errorf("%s: exit code %d: %s%s", name, code, out, errOut)
		}
	}
}

// A name at ADD does not count if the node has another interface of this name. Only the node knows, and if it cannot look for
// the interface, it has not said that nobody has it.
func TestHolderOfRenamedRepresentor(t *testing.T) {
	without, with := newAPIServer(t, dpdk(), agent("devinfo-agent", "devinfo", "a")), newAPIServer(t, append(waiting(), dpdk(), agent("devinfo-agent", "devinfo", "a"))...)
	const pf = `{"device": "eth7", "shared": true, "deviceInfo": {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.0"}}}`
	const nobody, unread = "devinfoctl: eth7: no device of that name\n", "devinfoctl: /sys/class/net: input/output error\n"
	for name, test := range map[string]struct {
		now, inspect string // the representor, and the answer or the error for the interface
		code         int
		shown, said  string
	}{
		"eth7":                    {"eth7", "", 0, "dpdk-0", ""},
		"eth7, by nobody":         {"tap0", nobody, 0, "dpdk-0", ""},
		"eth7, by nobody, filled": {"tap0", nobody, 0, "bare dpdk-0", ""}, // the API has no device of bare
		"eth7, by another":        {"tap0", pf, 1, "", "No pod has eth7"},
		"eth7, of a device":       {"tap0", `{"device": "0000:05:00.0"}`, 1, "", "No pod has eth7"},
		"eth7, unread":            {"tap0", unread, 0, "dpdk-0", "input/output error"}, // as the API has it
		"eth9":                    {"eth7", nobody, 1, "", "No pod has eth9"},
		"eth9, unread":            {"eth7", unread, 3, "", "input/output error"},
	} {
		server := without
		if strings.Contains(test.shown, "bare") {
			server = with
		}
		tool, stdout, errOut := server.tool(t)
		tool.exec = func(_ context.Context, _ *corev1.Pod, command []string, streams remotecommand.StreamOptions) error {
			answer := fmt.Sprintf(`{"attachments": [{"namespace": "default", "pod": "dpdk-0", "interface": "net1", "device": "0000:03:00.5", "representor": %q},
				{"namespace": "default", "pod": "bare", "interface": "net1", "device": "0000:03:00.6", "representor": "tap6", "deviceInfo": {"pci": {"representor-device": "eth7"}, "type": "pci"}}]}`, test.now)
			if command[1] == "inspect" {
				answer = test.inspect
			}
			if strings.HasPrefix(answer, "devinfoctl: ") {
				_, err := io.WriteString(streams.Stderr, answer)
				return errors.Join(err, exec.CodeExitError{Err: errors.New("exit status 3"), Code: 3})
			}
			_, err := io.WriteString(streams.Stdout, answer)
			return err
		}
		interfaceName, _, _ := strings.Cut(name, ",")
		code := tool.run(t.Context(), "holder", interfaceName, "--node", "n1", "-o", "name")
		shown := strings.Join(strings.Fields(strings.ReplaceAll(stdout.String(), "pod/", "")), " ")
		if code != test.code || shown != test.shown || !strings.Contains(errOut.String(), test.said) || test.said == "" && errOut.Len() > 0 {
			t.Errorf("%s: exit code %d: %q %s", name, code, shown, errOut)
		}
	}
}

// Who may not ask the node is told so only if the API does not have everything.
func TestRefusedNodeIsNotedWhereItIsMissed(t *testing.T) {
	server := newAPIServer(t, append(waiting(), dpdk(), agent("devinfo-agent", "devinfo", "a"))...)
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/exec"}, "a", errors.New("made up"))
	for _, test := range []struct {
		pod   string
		err   error
		noted bool
	}{{"dpdk-0", refused, false}, {"dpdk-0", errors.New("connection reset by peer"), true}, {"bare", refused, true}} {
		tool, _, errOut := server.tool(t)
		tool.answer("", "", test.err)
		if tool.run(t.Context(), "pod", test.pod); strings.Contains(errOut.String(), "did not answer") != test.noted {
			t.Errorf("%s, %v: %q", test.pod, test.err, errOut)
		}
	}
}

// inMemory passes requests to a server without a connection, so that a test can have a clock of its own.
type inMemory struct{ http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	m.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// An agent that hangs does not keep what the API knows from being shown.
func TestNodeThatHangsIsNotedAndTheRestShown(t *testing.T) {
	server := newAPIServer(t, append(waiting(), dpdk(), agent("devinfo-agent", "devinfo", "a"))...)
	for args, want := range map[string]struct {
		code        int
		shown, note string
	}{
		"pod dpdk-0":               {0, "device        0000:03:00.5\n", "note: what node n1 has on record is unknown, because it did not answer: pod devinfo/a took more than 5s: kubectl -n devinfo logs a may show why\n"},
		"pod bare":                 {3, "network       default/sriov-net\n", "note: the devices shown as ? are unknown, because node n1 did not answer: pod devinfo/a took more than 5s: "},
		"holder eth7 --node n1":    {3, "dpdk-0", "note: the devices shown as ? are unknown"},
		"holder eth9 --node n1":    {3, "", "no pod among the queried ones has eth9\n  correct what the notes name, and ask again\n"},
		"holder 03:00.5 --node n1": {3, "dpdk-0", "note: the devices shown as ? are unknown"},
	} {
		synctest.Test(t, func(t *testing.T) {
			tool, stdout, errOut := server.tool(t)
			tool.exec = func(ctx context.Context, _ *corev1.Pod, _ []string, _ remotecommand.StreamOptions) error {
				<-ctx.Done()
				return ctx.Err()
			}
			tool.config.WrapConfigFn = func(c *rest.Config) *rest.Config {
				c.Wrap(func(http.RoundTripper) http.RoundTripper { return inMemory{server} })
				return c
			}
			start := time.Now()
			code := tool.run(t.Context(), strings.Fields(args)...)
			if took := time.Since(start); took > 6*time.Second || code != want.code || !strings.Contains(stdout.String(), want.shown) || !strings.Contains(errOut.String(), want.note) {
				t.Errorf("%s: exit code %d after %v: %s%s", args, code, took, stdout, errOut)
			}
		})
	}
}
