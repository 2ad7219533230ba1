// Package nri keeps a plugin connected to a container runtime by NRI, the Node Resource
// Interface, and connects it again when the runtime restarts.
package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// Plugin is the NRI plugin to connect.
type Plugin struct {
	Handler     any    // answers the events: see stub.Plugin
	Name, Index string // of the plugin; the index is two digits
	Socket      string // of the runtime

	// FailRequests has the runtime fail a request that the plugin does not answer: it hangs, or
	// ends in it. Else the request goes on without the plugin, as with NRI before 0.12.4.
	FailRequests bool

	Handshake time.Duration // until which the runtime has answered; 0 = 20 s

	Connected func(bool) // is called at each change, and with false after each failed try
	Log       *slog.Logger
}

// The back-off between two tries to connect.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 15 * time.Second
)

// Serve keeps the plugin connected until ctx ends. It is no error if the runtime is away.
func (p Plugin) Serve(ctx context.Context) error {
	pause, said := firstPause, ""
	for ctx.Err() == nil {
		began := time.Now()
		connected, err := p.serveOnce(ctx)
		p.Connected(false)
		if ctx.Err() != nil {
			break
		}
		if connected && time.Since(began) > longestPause {
			pause = firstPause
		}
		level := slog.LevelDebug // it is no news
		if connected || said != err.Error() {
			level, said = slog.LevelWarn, err.Error()
		}
		p.Log.Log(ctx, level, "not connected to the container runtime", "socket", p.Socket, "retryIn", pause, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestPause)
	}
	return context.Cause(ctx)
}

// serveOnce also says whether there was a connection.
func (p Plugin) serveOnce(ctx context.Context) (connected bool, err error) {
	conn, err := net.Dial("unix", p.Socket)
	if err != nil {
		return false, err
	}
	defer conn.Close() // while Start waits for the second handshake, nothing else closes it
	// A stub cannot be used again after some of its errors. A plugin that does not answer is
	// disconnected in any case, so that it does not stop the whole node.
	s, err := stub.New(p.Handler, stub.WithPluginName(p.Name), stub.WithPluginIdx(p.Index), stub.WithConnection(conn),
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: p.FailRequests}), stub.WithLogger(libraryLog{p.Log}))
	if err != nil {
		return false, fmt.Errorf("NRI plugin %s-%s: %w", p.Index, p.Name, err)
	}
	limit := cmp.Or(p.Handshake, 20*time.Second)
	started := make(chan error, 1)
	go func() { started <- s.Start(ctx) }()
	select {
	case err := <-started:
		if err != nil {
			return false, err
		}
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(limit):
		return false, fmt.Errorf("%s: the container runtime did not answer within %v", p.Socket, limit)
	}
	p.Connected(true)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	s.Wait()
	return true, errors.New("connection closed")
}

// libraryLog is the log of the NRI library, whose information is for debugging.
type libraryLog struct{ to *slog.Logger }

func (l libraryLog) Debugf(ctx context.Context, format string, args ...any) {
	l.to.DebugContext(ctx, fmt.Sprintf(format, args...), "from", "nri")
}

func (l libraryLog) Infof(ctx context.Context, format string, args ...any) {
	l.Debugf(ctx, format, args...)
}

func (l libraryLog) Warnf(ctx context.Context, format string, args ...any) {
	l.to.WarnContext(ctx, fmt.Sprintf(format, args...), "from", "nri")
}

func (l libraryLog) Errorf(ctx context.Context, format string, args ...any) {
	l.to.ErrorContext(ctx, fmt.Sprintf(format, args...), "from", "nri")
}
