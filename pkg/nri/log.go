package dra

import (
	"context"
	"fmt"
	"log/slog"
)

// nriLog is the log of the NRI library, whose information is for debugging.
type nriLog struct{ to *slog.Logger }

func (l nriLog) Debugf(ctx context.Context, format string, args ...any) {
	l.to.DebugContext(ctx, fmt.Sprintf(format, args...), "from", "nri")
}

func (l nriLog) Infof(ctx context.Context, format string, args ...any) {
	l.Debugf(ctx, format, args...)
}

func (l nriLog) Warnf(ctx context.Context, format string, args ...any) {
	l.to.WarnContext(ctx, fmt.Sprintf(format, args...), "from", "nri")
}

func (l nriLog) Errorf(ctx context.Context, format string, args ...any) {
	l.to.ErrorContext(ctx, fmt.Sprintf(format, args...), "from", "nri")
}
