// Package httpstatus serves an agent's /healthz and /metrics over HTTP.
package httpstatus

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check is the health check of one component. Ask returns nil if the component is healthy.
type Check struct {
	Name     string
	Ask      func() error
	Optional bool // a failure is shown but does not make the agent unhealthy
}

// health replies with one line for each check. The status is 503 if a check that is not optional fails, else 200.
func health(w http.ResponseWriter, checks []Check) {
	var text strings.Builder
	code := http.StatusOK
	for _, c := range checks {
		err := c.Ask()
		if err == nil {
			fmt.Fprintf(&text, "[+] %s\n", c.Name)
			continue
		}
		fmt.Fprintf(&text, "[-] %s: %v\n", c.Name, err)
		if !c.Optional {
			code = http.StatusServiceUnavailable
		}
	}
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text.String()))
}

// Limits, because every pod can reach an open port.
const (
	scrapes  = 4   // concurrent requests of /metrics
	others   = 100 // connections from other addresses than loopback, 20 KB each
	patience = 30 * time.Second
	idle     = 2 * time.Minute // longer than a usual scrape interval
)

// Valid reports whether Serve accepts address, which must be host:port.
func Valid(address string) bool {
	_, port, err := net.SplitHostPort(address)
	_, noPort := strconv.ParseUint(port, 10, 16)
	return err == nil && noPort == nil
}

// Serve serves /metrics, and /healthz with the checks, at host:port until stop is called, or nothing if address, the
// value of --metrics-address, is "". If the server fails, for example because the previous agent still uses the address,
// it logs an error and retries. Do not use /healthz as a liveness probe: the agent retries by itself, so a restart does
// not help.
func Serve(ctx context.Context, address string, metrics prometheus.Gatherer, log *slog.Logger, checks ...Check) (stop func()) {
	if address == "" {
		return func() {}
	}
	const retry = 2 * time.Second
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() {
		for said := ""; ctx.Err() == nil; {
			err := serve(ctx, address, metrics, checks)
			if ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				log.Error("cannot serve /metrics and /healthz", "flag", "--metrics-address", "retryIn", retry, "error", err)
			}
			select {
			case <-time.After(retry):
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		serving.Wait()
	}
}

func serve(ctx context.Context, address string, metrics prometheus.Gatherer, checks []Check) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { health(w, checks) })
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes}))
	server := &http.Server{
		Handler: mux, ConnState: limited(), ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: idle, MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // without waiting for a slow scrape
	defer stop()
	return fmt.Errorf("%s: %w", address, server.Serve(listener))
}

// limited returns a hook that closes each connection of others beyond their limit. The kubelet's probe is none of them, if its
// host is 127.0.0.1.
func limited() func(net.Conn, http.ConnState) {
	var open atomic.Int32
	return func(c net.Conn, state http.ConnState) {
		if from, ok := c.RemoteAddr().(*net.TCPAddr); ok && from.IP.IsLoopback() {
			return
		}
		switch state {
		case http.StateNew:
			if open.Add(1) > others {
				c.Close()
			}
		case http.StateClosed:
			open.Add(-1)
		}
	}
}
