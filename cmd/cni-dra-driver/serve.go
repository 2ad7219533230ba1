package main

import (
	"context"
	"errors"
	"log/slog"

	"devinfo-cni.io/pkg/dra"
)

// serve attaches pods until ctx ends, and then finishes what runs.
func serve(ctx context.Context, agent *dra.Agent, o *options, log *slog.Logger) error {
	ended := make(chan error, 1)
	go func() { ended <- agent.ServeNRI(ctx, o.nriSocket, o.nriIndex) }()
	agent.Run(ctx)
	<-ended
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	log.Info("ended")
	return nil
}
