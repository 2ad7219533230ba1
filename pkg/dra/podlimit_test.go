package dra_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/test/difftest"
)

// Users can make pods larger than the API server's own limit suggests.
func TestOnlyTheBeginningOfALargePodIsRead(t *testing.T) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"ns","name":"p","uid":"uid-p","annotations":{"a":"%s"}},"spec":{"resourceClaims":[{"name":"c","resourceClaimName":"shared"}]}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		begin, end, _ := strings.Cut(pod, "%s")
		_, err := io.WriteString(w, begin)
		for n := 0; n < 300 && err == nil && strings.HasSuffix(request.URL.Path, "/large"); n++ {
			_, err = io.WriteString(w, strings.Repeat("x", 1<<20))
		}
		_, _ = io.WriteString(w, end)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, QPS: -1}
	config.Wrap(dra.LimitPods)
	client, err := kubernetes.NewForConfig(config)
	difftest.Must(t, err)
	for name, says := range map[string]string{"p": "", "large": "the pod has more than 1048576 bytes"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		names, err := dra.ClaimsOf(client)(t.Context(), state.Pod{Namespace: "ns", Name: name, UID: "uid-p"})
		runtime.ReadMemStats(&after)
		if says == "" {
			difftest.Same(t, fmt.Sprint(name, " ", err), names, []string{"shared"})
		} else {
			difftest.Says(t, err, says)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 { // the server is part of this process
			t.Errorf("%s: %d MiB are allocated", name, used>>20)
		}
	}
}
