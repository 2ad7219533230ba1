package devinfo

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"devinfo-cni.io/pkg/core/failure"
)

// signals receives the signals that would otherwise end the process, once delegates run. After a signal, ADD stops when the
// running delegate has ended; the other verbs finish.
type signals struct {
	once     sync.Once
	received chan os.Signal
}

// listen starts to receive signals: SIGTERM and SIGINT no longer end the process. SIGPIPE is received instead of ignored,
// because delegates would inherit an ignored signal. It is called once and only for delegates, because it takes a tenth of
// the time of a chained ADD.
func (s *signals) listen() {
	s.once.Do(func() {
		s.received = make(chan os.Signal, 1)
		signal.Notify(s.received, syscall.SIGTERM, syscall.SIGINT)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	})
}

// interrupted returns an error if a signal has arrived, so that no further step begins.
func (s *signals) interrupted() error {
	select {
	case sig := <-s.received:
		return failure.New(failure.TryAgain, fmt.Errorf("interrupted by signal %q", sig), "everything done so far was undone")
	default:
		return nil
	}
}
