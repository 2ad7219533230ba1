package main

import (
	"log/slog"
	"os"
)

// logger writes to standard error. Verbosity n is slog's level -n, so that 4 is
// slog.LevelDebug.
func logger(o *options) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.Level(-o.verbosity)}
	if o.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}
