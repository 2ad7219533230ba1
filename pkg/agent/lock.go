package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"devinfo-cni.io/pkg/safefile"
)

// ErrNotAlone is the error of an agent on a node where another agent runs. Use errors.Is to match it.
var ErrNotAlone = errors.New("another devinfo-agent runs on this node")

// Alone waits until no other agent runs on the node and takes a lock in dir, which it creates if necessary.
// Later agents wait until release is called or the process ends. Two agents at once, as in a rolling
// update, would overwrite the plugin in turn, and containers would fail because both NRI plugins have the
// same name.
func Alone(ctx context.Context, dir string, log *slog.Logger) (release func(), err error) {
	err = os.MkdirAll(dir, 0o755) // #nosec G301 -- pods in user namespaces must pass it
	if err != nil {
		return nil, err
	}
	path, busy := filepath.Join(dir, "lock"), new(safefile.BusyError)
	lock, err := safefile.LockFile(ctx, path, 0)
	if errors.As(err, &busy) {
		log.Info("waiting for the lock", "error", ErrNotAlone, "lock", path)
		lock, err = safefile.LockFile(ctx, path, math.MaxInt64)
	}
	if errors.As(err, &busy) {
		err = fmt.Errorf("%w: it holds the lock %s", ErrNotAlone, path)
	}
	return func() { safefile.Unlock(lock) }, err
}
