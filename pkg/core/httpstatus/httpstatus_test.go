package httpstatus_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"devinfo-cni.io/pkg/core/httpstatus"
	"devinfo-cni.io/test/difftest"
)

func TestHealthReportsEveryCheck(t *testing.T) {
	var optional, needed error
	handler := httpstatus.Health(httpstatus.Check{Name: "a", Optional: true, Ask: func() error { return optional }}, httpstatus.Check{Name: "b", Ask: func() error { return needed }})
	for _, test := range []struct {
		optional, needed error
		code             int
		text             string
	}{
		{nil, nil, 200, "[+] a\n[+] b\n"},
		{nil, errors.New("disk full"), 503, "[+] a\n[-] b: disk full\n"},
		{errors.New("away"), nil, 200, "[-] a: away\n[+] b\n"},
		{errors.New("away"), errors.New("disk full"), 503, "[-] a: away\n[-] b: disk full\n"},
	} {
		optional, needed = test.optional, test.needed
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", "/healthz", nil))
		if answer.Code != test.code || answer.Body.String() != test.text {
			t.Errorf("%+v: got %d %q", test, answer.Code, answer.Body)
		}
	}
}

func TestServeServesUntilStopped(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "a_total"})
	registry.MustRegister(counter)
	address := free(t)
	stop := served(t, address, registry)
	for path, want := range map[string]string{"/healthz": "", "/metrics": "a_total 0"} {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != 200 || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d %s", path, answer.StatusCode, text)
		}
	}
	stop()
	if _, err := http.Get("http://" + address + "/healthz"); err == nil {
		t.Error("it answers after stop")
	}
}

// served starts Serve and waits until it replies.
func served(t *testing.T, address string, metrics prometheus.Gatherer) (stop func()) {
	t.Helper()
	stop = httpstatus.Serve(t.Context(), "--flag", address, metrics, httpstatus.Health(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	difftest.Eventually(t, "it serves", func() bool {
		answer, err := http.Get("http://" + address + "/healthz")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil
	})
	return stop
}

func TestServeLogsBusyAddressOnce(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		stop := httpstatus.Serve(t.Context(), "--flag", taken.Addr().String(), prometheus.NewRegistry(), nil, slog.New(slog.NewTextHandler(&log, nil)))
		time.Sleep(10 * time.Minute)
		stop()
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "address already in use") {
			t.Errorf("logged:\n%s", text)
		}
	})
}

// free returns an unused address.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// gathering is a gatherer that blocks until the channel is closed.
type gathering chan struct{}

func (g gathering) Gather() ([]*dto.MetricFamily, error) {
	<-g
	return nil, nil
}

func TestConcurrentScrapesAreLimited(t *testing.T) {
	slow := make(gathering)
	address := free(t)
	defer served(t, address, slow)()
	const many = 20
	codes := make(chan int, many)
	for range many {
		go func() {
			answer, err := http.Get("http://" + address + "/metrics")
			if err != nil {
				codes <- 0
				return
			}
			answer.Body.Close()
			codes <- answer.StatusCode
		}()
	}
	for range many - 4 {
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("code %d", code)
		}
	}
	close(slow)
	for range 4 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("code %d", code)
		}
	}
}
