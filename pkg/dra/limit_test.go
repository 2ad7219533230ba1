package dra_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/status"
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
	config.Wrap(dra.Limit)
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

// hung is an API server that sends nothing, or the beginning of an answer.
type hung struct{ begins bool }

func (h hung) RoundTrip(request *http.Request) (*http.Response, error) {
	if !h.begins {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	r, w := io.Pipe()
	context.AfterFunc(request.Context(), func() { w.CloseWithError(request.Context().Err()) })
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: r}, nil
}

// The requests are those that the driver and Kubernetes' libraries make without a deadline.
func TestRequestThatHangsFails(t *testing.T) {
	for _, server := range []hung{{false}, {true}} {
		synctest.Test(t, func(t *testing.T) {
			config := &rest.Config{Host: "http://api", QPS: -1, Transport: server}
			config.Wrap(dra.Limit)
			client, err := kubernetes.NewForConfig(config)
			difftest.Must(t, err)
			slices := client.ResourceV1().ResourceSlices()
			for call, ask := range map[string]func() error{
				"get":    func() error { _, err := dra.ReadLabels(client, "n")(t.Context()); return err },
				"list":   func() error { _, err := slices.List(t.Context(), metav1.ListOptions{}); return err },
				"create": func() error { _, err := slices.Create(t.Context(), sliceOf("s"), metav1.CreateOptions{}); return err },
				"delete": func() error { return slices.Delete(t.Context(), "s", metav1.DeleteOptions{}) },
				"patch": func() error {
					return status.Apply(t.Context(), client, status.Report{Driver: "d", Namespace: "ns", Name: "c"})
				},
			} {
				began := time.Now()
				difftest.Says(t, ask(), "context deadline exceeded")
				difftest.Same(t, call, time.Since(began), 90*time.Second)
			}
			began := time.Now()
			watch, err := slices.Watch(t.Context(), metav1.ListOptions{})
			if err == nil {
				<-watch.ResultChan() // of an error, or closed
				watch.Stop()
			}
			if took := time.Since(began); took < 15*time.Minute { // the client tries some times
				t.Errorf("a watch ends after %v", took)
			}
		})
	}
}
