package publish

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/difftest"
)

// server is one that answers with a status and a message; it keeps the last request.
type server struct {
	status     int
	message    string
	field      string // that it does not take
	path, body string
	headers    http.Header
	requests   int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.path, s.body, s.headers = r.Method+" "+r.URL.String(), string(body), r.Header
	s.requests++
	w.WriteHeader(s.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "message": s.message, "details": map[string]any{"causes": []any{map[string]string{"field": s.field}}}})
}

var must = difftest.Must

func (s *server) open(t *testing.T) (a *API, dir string) {
	t.Helper()
	https := httptest.NewTLSServer(s)
	t.Cleanup(https.Close)
	dir = t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw})
	for name, content := range map[string][]byte{"ca.crt": ca, "token": []byte("first\n")} {
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	a, err := Open(https.URL, dir)
	must(t, err)
	return a, dir
}

var web = Pod{"shop", "web-0", "6a4c"}

func TestAPodIsAnnotatedInOneRequest(t *testing.T) {
	s := &server{status: 200}
	a, dir := s.open(t)
	networks := []Network{{"mem", "net1", json.RawMessage(`{"type":"memif"}`)}, {"lan", "net2", nil}}
	must(t, a.Annotate(t.Context(), web, networks))
	const path = "PATCH /api/v1/namespaces/shop/pods/web-0?fieldManager=devinfo-agent"
	if s.path != path || s.headers.Get("Content-Type") != "application/merge-patch+json" || s.headers.Get("Authorization") != "Bearer first" {
		t.Errorf("%s %v", s.path, s.headers)
	}
	const body = `{"metadata":{"annotations":{"devinfo-cni.io/network-info":"[{\"name\":\"mem\",\"interface\":\"net1\",\"device-info\":{\"type\":\"memif\"}},{\"name\":\"lan\",\"interface\":\"net2\"}]"},"uid":"6a4c"}}`
	if s.body != body {
		t.Errorf("got  %s\nwant %s", s.body, body)
	}
	must(t, os.WriteFile(filepath.Join(dir, "token"), []byte("second"), 0o600))
	if err := a.Annotate(t.Context(), web, networks); err != nil || s.headers.Get("Authorization") != "Bearer second" {
		t.Errorf("%v %v", err, s.headers)
	}
}

func TestWhatTheAPIServerSaysIsTold(t *testing.T) {
	for _, test := range []struct {
		status int
		field  string // that it does not take
		is     error
		says   string
	}{
		{404, "", ErrGone, "why"}, {409, "", ErrGone, "why"}, {422, "metadata.uid", ErrGone, "why"}, // another pod's UID
		{422, "", ErrRefused, "pod shop/web-0: the API server refuses the annotation: why"},
		{403, "", ErrRefused, "why: the chart's agent.publish=true, or the component publish"},
		{401, "", nil, "annotate pod shop/web-0: why"}, {500, "", nil, "annotate pod shop/web-0: why"}, {429, "", nil, "annotate pod shop/web-0: why"},
	} {
		s := &server{status: test.status, message: "why", field: test.field}
		a, _ := s.open(t)
		err := a.Annotate(t.Context(), web, nil)
		if err == nil || errors.Is(err, ErrGone) != (test.is == ErrGone) || errors.Is(err, ErrRefused) != (test.is == ErrRefused) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%d: %v", test.status, err)
		}
	}
}

// The names are what a runtime passes: they lead nowhere else.
func TestANameThatIsNoPodsIsNotAskedFor(t *testing.T) {
	s := &server{status: 200}
	a, _ := s.open(t)
	for _, pod := range []Pod{{"shop", "../../../secrets/x", "u"}, {"..", "web", "u"}, {"shop", "web?x=y", "u"}, {"shop", "web", ""}, {"", "web", "u"}} {
		if err := a.Annotate(t.Context(), pod, nil); !errors.Is(err, ErrGone) {
			t.Errorf("%+v: %v", pod, err)
		}
	}
	if s.requests != 0 {
		t.Errorf("%d requests, the last one %s", s.requests, s.path)
	}
}

func TestWithoutAServiceAccountItSaysWhatItTakes(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := InCluster(); err == nil || !strings.Contains(err.Error(), "it takes a pod with a service account") {
		t.Error(err)
	}
	dir := t.TempDir()
	if _, err := Open("https://127.0.0.1:1", dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("no certificate"), 0o600))
	if _, err := Open("https://127.0.0.1:1", dir); err == nil || !strings.Contains(err.Error(), "no certificate in it") {
		t.Error(err)
	}
}
