package plugin

import (
	"os"
	"os/signal"
	"syscall"
)

// KeepBrokenPipes makes writing to a runtime that no longer reads an error, where it
// would kill the process amid an ADD.
func KeepBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }

// TakeSignals is [Plugin.Listen] for a process: SIGTERM and SIGINT no longer end it
// half-way. SIGPIPE is taken too, and not ignored: the delegates would inherit that.
func TakeSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signals
}
