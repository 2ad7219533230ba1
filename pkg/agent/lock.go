package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"
)

// ErrNotAlone is the error, to be matched by errors.Is, that another agent runs on the node.
var ErrNotAlone = errors.New("another devinfo-agent runs on this node")

// Alone waits until no other agent runs on the node, and keeps others waiting until release
// is called, or the process ends. Two at once, as in a rolling update, would put each
// other's plugin in place in turn, and fail containers as NRI plugins of one name do. The
// directory is the agents' own on the node; it is made if need be.
func Alone(ctx context.Context, dir string, log *slog.Logger) (release func(), err error) {
	err = os.MkdirAll(dir, 0o755) // #nosec G301 -- pods in user namespaces must pass it
	if err != nil {
		return nil, err
	}
	f, err := os.Open(dir) // nothing has to be made in it, be the disk full
	if err != nil {
		return nil, err
	}
	const pause = 200 * time.Millisecond
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case errors.Is(err, syscall.EINTR):
		case !errors.Is(err, syscall.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		case !waiting:
			log.Info("waiting", "error", ErrNotAlone, "lock", dir)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("%w: it has %s locked", ErrNotAlone, dir)
		}
	}
}
