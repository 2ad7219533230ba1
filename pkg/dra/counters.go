package dra

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
)

// countersSince is the first Kubernetes whose scheduler is quick with counters. That of 1.36
// converts every pool for every node.
const countersSince = "1.37"

// decideCounters waits for the API server's version, and lets the agent publish counters if the
// scheduler is quick with them. An upgrade is noticed at the next start.
func (k *Kubelet) decideCounters(ctx context.Context) {
	const pause = 2 * time.Second
	log, waits := k.agent.Log, false
	for ctx.Err() == nil {
		server, err := k.options.Client.Discovery().ServerVersion()
		switch {
		case apierrors.IsForbidden(err):
			log.Error("counters are not published, for the API server does not tell its version: --counters=force publishes them", "error", err)
			return
		case err == nil:
			if is, err := version.ParseGeneric(server.GitVersion); err == nil && is.AtLeast(version.MustParseGeneric(countersSince)) {
				k.agent.count(true)
				return
			}
			log.Warn("counters are not published: the scheduler of Kubernetes 1.36 needs 400 ms for each pod with 10 nodes of 1,024 VFs, and 2.4 s with 50; --counters=force publishes them all the same",
				"server", server.GitVersion, "since", countersSince)
			return
		case !waits:
			waits = true
			log.Error("nothing is published until the API server tells its version, which --counters=auto goes by", "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
