// Package injecttest has what tests need of an agent on a node with a kernel.
package injecttest

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Uncounted discards the agent's metrics. A test embeds it in what counts some.
type Uncounted struct{}

func (Uncounted) Decided(inject.Decision, inject.Reason, time.Duration) {}
func (Uncounted) Withheld(inject.Withheld)                              {}
func (Uncounted) Disagrees(inject.Disagreement)                         {}
func (Uncounted) Staged(int)                                            {}
func (Uncounted) Waited(time.Duration)                                  {}

// Config returns the configuration of an agent on this node, which rejects a container without its information.
func Config(nodeFile, stageDir string, metrics inject.Metrics) (c inject.Config, err error) {
	node := func() (config.Node, error) { return config.LoadNode(nodeFile) }
	settings, err := node()
	boot, bootErr := journal.BootID()
	sys, sysErr := sysfs.Open(settings.Sysfs)
	if err = cmp.Or(err, bootErr, sysErr); err != nil {
		return c, err
	}
	kernel := link.NewKernel(sys.Files())
	return inject.Config{
		StageDir: stageDir, BootID: boot, MissingInfo: inject.Reject, Node: node, Metrics: metrics, Index: "60", Connected: func(error) {},
		Finder: &discovery.Finder{Sys: sys, Interfaces: kernel, Eswitches: kernel}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}, nil
}
