package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A check says what is wrong with a part of the agent; nil = nothing.
type check struct {
	name string
	ask  func() error
}

// healthz answers 200 if every check succeeds, else 503, with a line for each. The agent
// mends what it can by itself: restarting it because of a 503 helps nothing.
func healthz(checks ...check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var text strings.Builder
		code := http.StatusOK
		for _, c := range checks {
			if err := c.ask(); err != nil {
				code = http.StatusServiceUnavailable
				fmt.Fprintf(&text, "[-] %s: %v\n", c.name, err)
			} else {
				fmt.Fprintf(&text, "[+] %s\n", c.name)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text.String()))
	})
}

// serveHTTP serves /healthz and /metrics until stop is called. An endpoint that is taken
// is an error now, a server that ends later is told to fatal.
func serveHTTP(endpoint string, metrics prometheus.Gatherer, health http.Handler, fatal func(error)) (stop func(), err error) {
	listener, err := net.Listen("tcp", endpoint)
	if err != nil {
		return nil, fmt.Errorf("--http-endpoint: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/healthz", health)
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fatal(fmt.Errorf("--http-endpoint %s: %w", endpoint, err))
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // a scrape that hangs is not waited for
	}, nil
}
