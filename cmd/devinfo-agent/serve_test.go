package main

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestThatMetricsCannotBeServedIsLoggedOnce(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		stop := serve(t.Context(), taken.Addr().String(), prometheus.NewRegistry(), nil, slog.New(slog.NewTextHandler(&log, nil)))
		time.Sleep(10 * time.Minute)
		stop()
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "address already in use") {
			t.Errorf("logged:\n%s", text)
		}
	})
}
