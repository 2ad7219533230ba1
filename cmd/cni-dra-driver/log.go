package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"k8s.io/klog/v2"
)

// logger writes to standard error, for the Kubernetes libraries too. Their verbosity n is
// slog's level -n, so that 4 is slog.LevelDebug.
func logger(o *options) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: slog.Level(-o.verbosity)}
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, options)
	if o.logFormat == "json" {
		handler = slog.NewJSONHandler(os.Stderr, options)
	}
	var level klog.Level
	if err := level.Set(fmt.Sprint(o.verbosity)); err != nil {
		return nil, errors.Join(errors.New("-v"), err)
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log)
	return log, nil
}
