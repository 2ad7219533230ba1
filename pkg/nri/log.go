package nri

import (
	"context"
	"fmt"
	"log/slog"
)

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
