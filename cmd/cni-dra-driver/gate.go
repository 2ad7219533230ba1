package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"devinfo-cni.io/pkg/install"
)

// gateName is the program that the runtime runs for each container of a claim. It is kept
// beside the CNI plugins, where programs may be run.
const gateName = "cni-dra-gate"

// gateOn is where the program is on the node; "" = nowhere.
func (o *options) gateOn(bin string) string {
	if o.gate == "" {
		return ""
	}
	return filepath.Join(bin, gateName)
}

// keepGate puts the program on the node. Until it is there no container of a claim is made.
func (o *options) keepGate(bin string, log *slog.Logger) error {
	if o.gate == "" || bin == "" {
		return nil
	}
	warning, err := install.Program(o.gate, filepath.Join("/", o.hostRoot, o.gateOn(bin)))
	if err != nil {
		return fmt.Errorf("%s: it comes with this program, and keeps containers from the networks of others: %w", gateName, err)
	}
	if warning != nil {
		log.Warn("the runtime may not be allowed to run it", "program", gateName, "error", warning)
	}
	return nil
}

// gateEvery is how long the program may be missing that somebody has removed.
const gateEvery = time.Minute

// keepKeeping does it again and again until ctx ends.
func (o *options) keepKeeping(ctx context.Context, bin string, log *slog.Logger) {
	tick := time.NewTicker(gateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := o.keepGate(bin, log); err != nil {
			log.Error("no container of a claim is made", "error", err)
		}
	}
}
