package agent

import (
	"context"
	"fmt"
	"io"
	"time"

	"devinfo-cni.io/pkg/inject"
	"devinfo-cni.io/pkg/install"
	"devinfo-cni.io/pkg/journal"
	plugin "devinfo-cni.io/plugins/devinfo"
)

// sweep removes what dead sandboxes and older boots have left.
func (a *Agent) sweep(ctx context.Context) {
	garbage, err := a.collect(ctx)
	a.metrics.collected.WithLabelValues("attachment").Add(float64(garbage.Collected))
	a.metrics.collected.WithLabelValues("file").Add(float64(garbage.Swept))
	a.left.Store(int64(garbage.Left))
	if ctx.Err() != nil {
		return // it was cut short
	}
	result := "ok"
	if err != nil {
		result = "failed"
	}
	a.metrics.sweeps.WithLabelValues(result).Inc()
	a.report(GC, err)
	if garbage.Collected > 0 || garbage.Swept > 0 {
		a.Log.Info("removed leftovers", "attachments", garbage.Collected, "files", garbage.Swept)
	}
}

func (a *Agent) collect(ctx context.Context) (plugin.Garbage, error) {
	node, checker, err := a.checker()
	if err != nil {
		return plugin.Garbage{}, err
	}
	p := plugin.New(node, *checker.Finder, a.BootID, io.Discard, a.Log)
	if a.HostRoot != "/" {
		p.Root = a.HostRoot
	}
	spread := pace{time.Now()}
	return p.CollectStale(ctx, a.CNIPath, a.HostRoot != "", spread.rest)
}

// Uninstall removes the plugin, the settings and what pods that are gone were given, as far as
// they are ours, after what can be swept. As long as an attachment is on record nothing is
// removed: the runtime could not delete the pod without the plugin. If anyway is set, that is
// only said.
func (a *Agent) Uninstall(ctx context.Context, anyway bool) error {
	warn := func(what string, err error) {
		if err != nil {
			a.Log.Warn(what, "error", err)
		}
	}
	_, err := a.collect(ctx)
	warn("cleanup incomplete", err)
	err = a.unused()
	if err != nil && !anyway {
		return fmt.Errorf("%w (or uninstall anyway with --force)", err)
	}
	warn("uninstalling although attachments may exist", err)
	free := err == nil && a.Options.Plugin.IsThere() // else its settings may be gone, and with them where the journal is
	node, err := a.Node()
	warn("cannot read the node settings", err)
	if a.Injection != nil {
		o := *a.Injection
		o.Log = a.Log
		warn("could not remove files injected into pods that no longer exist", inject.New(o).RemoveEnded(node, free))
	}
	removed, err := a.Options.Plugin.Remove(ctx)
	if err != nil {
		return err
	}
	a.Log.Info("plugin", "removed", removed)
	if a.Options.Settings == nil {
		return nil
	}
	removed, err = a.Options.Settings.Remove()
	if err == nil {
		a.Log.Info("node settings", "removed", removed)
	}
	return err
}

// unused is the error that attachments are on record, or that nobody can say. Where the plugin
// is gone, and with it the settings, no directory is made for that.
func (a *Agent) unused() error {
	j, err := a.journal()
	if err == nil && a.Options.Plugin.IsThere() {
		err = j.EnsureDir()
	}
	if err != nil {
		return err
	}
	keys, err := j.All()
	if err != nil {
		return err
	}
	var holders []string
	for _, k := range keys {
		holder := "attachment " + k.String() // whose entry cannot be read
		if e, err := j.Get(k); err == nil && e != nil {
			holder = journal.Holder{Entry: e}.String()
		}
		holders = append(holders, holder)
	}
	if holders != nil {
		return fmt.Errorf("the journal has %d attachments: delete their pods first: %s", len(holders), install.Some(holders))
	}
	return nil
}
