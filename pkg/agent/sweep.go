package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/journal"
)

// sweep removes the state left by dead sandboxes and previous boots, and updates the metrics.
func (a *Agent) sweep(ctx context.Context) {
	garbage, err := a.collect(ctx)
	a.metrics.collected.WithLabelValues("attachment").Add(float64(garbage.Collected))
	a.metrics.collected.WithLabelValues("file").Add(float64(garbage.Swept))
	if ctx.Err() != nil {
		return // the sweep is incomplete
	}
	left := int64(garbage.Left)
	if err != nil { // it has perhaps not seen all
		left = max(left, a.left.Load())
	}
	a.left.Store(left)
	a.metrics.sweeps.WithLabelValues(map[bool]string{true: "ok", false: "failed"}[err == nil]).Inc()
	a.report(GC, err)
	if garbage.Collected > 0 || garbage.Swept > 0 {
		a.Log.Info("removed leftovers", "attachments", garbage.Collected, "files", garbage.Swept)
	}
}

// collect removes stale attachments and reports the number of removed and remaining ones.
func (a *Agent) collect(ctx context.Context) (cleanup.Garbage, error) {
	node, checker, err := a.checker()
	if err != nil {
		return cleanup.Garbage{}, err
	}
	c := cleanup.New(node, *checker.Finder, a.BootID, a.Log)
	c.CNIPath = a.CNIPath
	if a.HostRoot != "/" {
		c.Root = a.HostRoot
	}
	spread := pace{time.Now()}
	return c.CollectStale(ctx, a.HostRoot != "", spread.rest)
}

// Uninstall cleans up and then removes the plugin, the node's settings and the directories of ended
// sandboxes. It removes only files that an agent has installed, and any devinfo executable; what cni-dra-driver needs too
// remains. If the journal has attachments, or is unreadable, Uninstall returns an error and removes nothing, because the
// runtime could not delete their pods without the plugin. If force is set, it logs a warning instead. Settings that the
// agent has refused to install do not stop it.
func (a *Agent) Uninstall(ctx context.Context, force bool) error {
	warn := func(what string, err error) {
		if err != nil {
			a.Log.Warn(what, "error", err)
		}
	}
	settings := a.Options.Settings
	_, err := a.Node()
	if _, missing := os.Stat(a.NodeConfig); err != nil && errors.Is(missing, fs.ErrNotExist) {
		// The agent has not installed the settings that it refuses, so the plugin runs with the defaults.
		warn("settings ignored", err)
		a.Options.Settings = nil // [Agent.Node] then returns the defaults
	}
	_, err = a.collect(ctx)
	warn("cleanup incomplete", err)
	err = a.unused()
	if err != nil && !force {
		return fmt.Errorf("%w (or uninstall anyway with --force)", err)
	}
	warn("uninstalling although attachments may exist", err)
	// Without the plugin, the settings may have been removed too, and the journal may be in another directory.
	free := err == nil && a.Options.Plugin.IsThere()
	node, err := a.Node()
	warn("cannot read the node settings", err)
	if a.injector != nil {
		warn("could not remove files injected into pods that no longer exist", a.injector.RemoveEnded(node, free))
	}
	removed, err := a.Options.Plugin.Remove(ctx)
	if err != nil {
		return err
	}
	a.Log.Info("plugin", "removed", removed)
	if !removed && a.Options.Plugin.IsThere() {
		a.Log.Info("left the plugin in place, because cni-dra-driver needs it, or because it is another program")
	}
	placed, err := a.Options.Plugin.Placed()
	if err != nil || settings == nil {
		return err
	}
	if placed {
		a.Log.Info("left the node settings in place, because cni-dra-driver needs them")
		return nil
	}
	removed, err = settings.Remove()
	if err == nil {
		a.Log.Info("node settings", "removed", removed)
	}
	return err
}

// unused returns an error if the journal has attachments or cannot be read. If the plugin does not exist,
// the settings may have been removed too, so unused does not create the journal's directory.
func (a *Agent) unused() error {
	j, err := a.journal(a.Options.Plugin.IsThere())
	if err != nil {
		return err
	}
	keys, err := j.All()
	if err != nil {
		return err
	}
	var holders []string
	for _, k := range keys {
		holder := "attachment " + k.String() // used if the entry cannot be read
		if e, err := j.Get(k); err == nil && e != nil {
			holder = journal.Holder{Entry: e}.Name()
		}
		holders = append(holders, holder)
	}
	if holders != nil {
		return fmt.Errorf("the journal has %d attachments: delete their pods first: %s", len(holders), clierr.Few(holders, 20))
	}
	return nil
}
