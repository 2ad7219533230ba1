// Package httpstatus serves an agent's /healthz and /metrics by HTTP.
package httpstatus

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Check returns what is wrong with a part of the agent; nil = nothing.
type Check struct {
	Name     string
	Ask      func() error
	Optional bool // the agent does its work without that part: what is wrong is only said
}

// Health answers 200 if every check succeeds that is not optional, else 503, with a line for
// each. The agent mends what it can by itself: restarting it because of a 503 helps nothing.
func Health(checks ...Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var text strings.Builder
		code := http.StatusOK
		for _, c := range checks {
			if err := c.Ask(); err != nil {
				if !c.Optional {
					code = http.StatusServiceUnavailable
				}
				fmt.Fprintf(&text, "[-] %s: %v\n", c.Name, err)
			} else {
				fmt.Fprintf(&text, "[+] %s\n", c.Name)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text.String()))
	})
}

// Where the port is open, every pod can reach it.
const (
	scrapes  = 4 // at a time
	patience = 30 * time.Second
	idle     = 2 * time.Minute // more than a usual scrape interval
)

// Valid says whether an address is host:port, as Serve takes it.
func Valid(address string) bool {
	_, port, err := net.SplitHostPort(address)
	_, noPort := strconv.ParseUint(port, 10, 16)
	return err == nil && noPort == nil
}

// Serve serves /healthz and /metrics at host:port until stop is called. If the address is taken, by
// the agent before this one for example, or the server ends, it logs the error and tries again: the
// rest of an agent does not depend on it. flag is the name of the flag that gave the address.
func Serve(ctx context.Context, flag, address string, metrics prometheus.Gatherer, health http.Handler, log *slog.Logger) (stop func()) {
	const retry = 2 * time.Second
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for said := ""; ctx.Err() == nil; {
			err := serve(ctx, address, metrics, health)
			if ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				log.Error("cannot serve /metrics and /healthz", "flag", flag, "retryIn", retry, "error", err)
			}
			select {
			case <-time.After(retry):
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// serve serves until ctx ends, or something fails.
func serve(ctx context.Context, address string, metrics prometheus.Gatherer, health http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/healthz", health)
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes}))
	server := &http.Server{Handler: mux, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: idle, MaxHeaderBytes: 16 << 10}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // a scrape that hangs is not waited for
	})
	err = server.Serve(listener)
	if !stop() {
		<-stopped
	}
	return fmt.Errorf("%s: %w", address, err)
}
