package plugin

import (
	"os"
	"os/signal"
	"syscall"
)

// TakeSignals is [Plugin.Listen] for a process: SIGTERM and SIGINT no longer end it
// half-way. Until then, waiting for a configuration on standard input, they do.
func TakeSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	// A runtime that no longer reads must not kill us amid an ADD: with somebody to
	// take the signal, the write fails instead. Ignored, the delegates would inherit it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signals
}
