package dra_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// Users can fill a namespace with claims, and make pods larger than the API server's own limit suggests. What the driver
// reads for a sandbox depends on neither.
func TestSandboxReadsLittleFromAPIServer(t *testing.T) {
	const claims, each, most = 1000, 300 << 10, 16 << 20
	filler := strings.Repeat("x", each)
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"ns","name":"p","uid":"uid-p","annotations":{"a":%q}},"spec":{"resourceClaims":[{"name":"c","resourceClaimName":"shared"}]}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch request.URL.Path {
		case "/api/v1/namespaces/ns/pods/p":
			fmt.Fprintf(w, pod, "")
		case "/api/v1/namespaces/ns/pods/large":
			head, _, _ := strings.Cut(fmt.Sprintf(pod, "x"), `x"}}`)
			_, _ = io.WriteString(w, head)
			for range claims {
				if _, err := io.WriteString(w, filler); err != nil {
					return
				}
			}
		default: // claims of the namespace
			fmt.Fprint(w, `{"kind":"ResourceClaimList","apiVersion":"resource.k8s.io/v1","items":[{}`)
			for range claims {
				fmt.Fprintf(w, `,{"metadata":{"annotations":{"a":%q}}}`, filler)
			}
			fmt.Fprint(w, "]}")
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, QPS: -1}
	config.Wrap(dra.LimitPods)
	client, err := kubernetes.NewForConfig(config)
	difftest.Must(t, err)
	r := dratest.NewRig(t)
	r.UsePlugins()
	r.Options.ClaimsOf = dra.ClaimsOf(client)
	r.Start()
	r.Prepare(r.ClaimOf("a", "u1", "one", dratest.Net("x", "net1", "")), r.ClaimOf("b", "u2", "two", dratest.Net("x", "net1", "")))
	names, err := r.Options.ClaimsOf(t.Context(), state.Pod{Namespace: "ns", Name: "p", UID: "uid-p"})
	difftest.Must(t, err)
	difftest.Equal(t, names, []string{"shared"})
	used := allocated(func() {
		for n := range 3 {
			difftest.Must(t, r.RunPod(r.Sandbox(fmt.Sprint("s", n), "p")))
		}
	})
	if used > most {
		t.Errorf("sandboxes used %d MiB", used>>20)
	}
	used = allocated(func() {
		_, err = r.Options.ClaimsOf(t.Context(), state.Pod{Namespace: "ns", Name: "large", UID: "uid-large"})
		difftest.Says(t, err, "the pod has more than 1048576 bytes")
	})
	if used > most {
		t.Errorf("a large pod used %d MiB", used>>20)
	}
	if list := func() {
		_, _ = client.ResourceV1().ResourceClaims("ns").List(t.Context(), metav1.ListOptions{Limit: 1})
	}; allocated(list) < most {
		t.Error("the measurement misses a list of claims")
	}
}

// allocated returns the bytes that the process allocates on its heap while f runs, whether or not it still needs them.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
