// Package endpoint serves an agent's /healthz and /metrics by HTTP.
package endpoint

import (
	"context"
	"errors"
	"fmt"
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

// Serve serves /healthz and /metrics at host:port until stop is called. It fails if the
// address is taken; if the server ends later, it calls fatal.
func Serve(address string, metrics prometheus.Gatherer, health http.Handler, fatal func(error)) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/healthz", health)
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes}))
	server := &http.Server{Handler: mux, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: idle, MaxHeaderBytes: 16 << 10}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fatal(fmt.Errorf("%s: %w", address, err))
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // a scrape that hangs is not waited for
	}, nil
}
