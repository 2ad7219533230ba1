// Package nri connects a plugin to a container runtime by NRI, the Node Resource Interface, reconnects it, and limits the time
// that its handlers wait.
package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// Plugin is an NRI plugin and its connection settings.
type Plugin struct {
	Handler     any    // its methods handle the events: see stub.Plugin
	Name, Index string // the index is two digits
	Socket      string // path of the runtime's socket

	Handshake time.Duration // limit for connecting; 0 = 20 s

	Connected func(away error) // called with nil when the runtime is connected, and with a remedy after each failed attempt and at the end
	Log       *slog.Logger
}

// Bounds of the pause between two attempts to connect.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 15 * time.Second
)

// Serve keeps the plugin connected until ctx ends. It retries while the runtime is unavailable. The runtime fails a
// request if the plugin hangs or dies while it handles the request; NRI before 0.12.4 continues without the plugin.
func (p Plugin) Serve(ctx context.Context) {
	pause, said := firstPause, ""
	for ctx.Err() == nil {
		began := time.Now()
		conn, err := net.Dial("unix", p.Socket)
		absent, connected := err != nil, false
		if !absent {
			connected, err = p.serveOn(ctx, conn)
		}
		p.Connected(fmt.Errorf("not connected to %s: check that the container runtime runs with NRI enabled", p.Socket))
		if ctx.Err() != nil {
			return
		}
		if absent || connected && time.Since(began) > longestPause { // a runtime that restarts goes on with its pods at once
			pause = firstPause
		}
		level := slog.LevelDebug // log the same error as a warning only once
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
}

// serveOn waits until the connection ends. connected is true if the handshake succeeded.
func (p Plugin) serveOn(ctx context.Context, conn net.Conn) (connected bool, err error) {
	defer conn.Close() // while Start waits for the handshake, only this ends it
	// Use a new stub for each connection, because a stub cannot be reused after some errors. The failure
	// policy does not set KeepConnected, so the runtime disconnects a plugin that hangs. If the runtime
	// kept it, every request on the node would wait for it.
	s, err := stub.New(p.Handler, stub.WithPluginName(p.Name), stub.WithPluginIdx(p.Index), stub.WithConnection(conn),
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}), stub.WithLogger(libraryLog{p.Log}))
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
	p.Connected(nil)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	s.Wait()
	return true, errors.New("connection closed")
}

// Namespace returns the namespace of a kind, such as "network", from the lists of a pod and its container, or nil.
func Namespace(kind string, lists ...[]*api.LinuxNamespace) *api.LinuxNamespace {
	for _, n := range slices.Concat(lists...) {
		if n.GetType() == kind {
			return n
		}
	}
	return nil
}

// libraryLog writes the log of the NRI library to another log. Its informational messages become debug messages.
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

// Budget limits the time that all handlers of a plugin wait together. The runtime's NRI server has one mutex for all
// requests of the node, so every pod of the node waits with a handler.
type Budget struct {
	burst  time.Duration
	share  float64
	least  time.Duration
	waited func(time.Duration)

	mu   sync.Mutex
	left time.Duration
	at   time.Time // of the last addition to left
}

// NewBudget returns a budget of burst, which fills again by share of the passing time. With 0.5 s and 0.05, handlers wait
// for at most 1 s in any 10 s, and in the long run for 50 ms in each second. While less than least is left, nobody waits,
// so that the budget is not spent in pieces that are too short for anybody. waited is called with the time that a handler has
// waited.
func NewBudget(burst time.Duration, share float64, least time.Duration, waited func(time.Duration)) *Budget {
	return &Budget{burst: burst, share: share, least: least, waited: waited, left: burst, at: time.Now()}
}

// Begin returns a context for all that a handler waits for. It ends when the budget is used up. Call end when the
// handler waits no longer.
func (b *Budget) Begin(ctx context.Context) (_ context.Context, end func()) {
	began := time.Now()
	b.mu.Lock()
	b.left = min(b.burst, b.left+time.Duration(b.share*float64(began.Sub(b.at))))
	b.at = began
	grant := b.left
	if grant < b.least { // also if others have waited for longer than their grants
		grant = 0
	}
	b.left -= grant // another handler must not get it too
	b.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, began.Add(grant))
	return ctx, func() {
		cancel()
		now := time.Now()
		b.mu.Lock()
		b.left = min(b.burst, b.left+grant-now.Sub(began))
		b.mu.Unlock()
		b.waited(now.Sub(began))
	}
}
