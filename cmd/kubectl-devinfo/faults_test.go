package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

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
