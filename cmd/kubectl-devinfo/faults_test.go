package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

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
			tool.answer(`{"attachments": []}`)
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

// A node that cannot look for an interface has not said that nobody has it.
func TestFailedLookIsNotNobody(t *testing.T) {
	server := newAPIServer(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, agent("devinfo-agent", "devinfo", "a"))
	for said, want := range map[string]struct {
		code int
		text string
	}{
		"devinfoctl: eth9: no device of that name\n":       {1, "No pod has eth9"},
		"devinfoctl: /sys/class/net: input/output error\n": {3, "input/output error"},
	} {
		tool, _, errOut := server.tool(t)
		tool.exec = func(_ context.Context, _ *corev1.Pod, command []string, streams remotecommand.StreamOptions) error {
			if command[1] == "list" {
				_, err := io.WriteString(streams.Stdout, `{"attachments": []}`)
				return err
			}
			_, err := io.WriteString(streams.Stderr, said)
			return errors.Join(err, exec.CodeExitError{Err: errors.New("exit status 2"), Code: 2})
		}
		if code := tool.run(t.Context(), "holder", "eth9", "--node", "n1"); code != want.code || !strings.Contains(errOut.String(), want.text) {
			t.Errorf("%q: exit code %d: %s", said, code, errOut)
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
		tool.exec = func(context.Context, *corev1.Pod, []string, remotecommand.StreamOptions) error { return test.err }
		if tool.run(t.Context(), "pod", test.pod); strings.Contains(errOut.String(), "did not answer") != test.noted {
			t.Errorf("%s, %v: %q", test.pod, test.err, errOut)
		}
	}
}
