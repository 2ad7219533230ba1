package agent

import (
	"context"
	"errors"
	"fmt"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/install"
	"devinfo-cni.io/pkg/journal"
)

// keep checks and restores the settings and the plugin once.
func (a *Agent) keep(ctx context.Context) {
	var unlabelled, err error
	if a.Settings != nil {
		unlabelled, err = a.arrange()
	}
	node, broken := a.Node() // check settings of any origin, because broken ones make every ADD fail
	var blind error
	if broken == nil {
		// Multus creates a missing deviceInfoDir with mode 000. An agent that lacks CAP_DAC_OVERRIDE could
		// not read it.
		if err := store.Open(node.DeviceInfoDir).Make(); err != nil {
			broken = fmt.Errorf("deviceInfoDir: %w", err)
		}
		blind = journal.Open(node.StateDir, a.BootID).EnsureDir()
	}
	a.report(Settings, errors.Join(err, broken))

	done, err := a.Options.Plugin.Keep(ctx)
	if ctx.Err() != nil {
		return // Keep may have been interrupted
	}
	a.note(done, err)
	if err == nil {
		a.report(Label, errors.Join(done.Warning, unlabelled))
		err = blind // the agent must read the journal to update or uninstall the plugin
	}
	a.report(Plugin, err)
}

// arrange installs the settings. unlabelled is the error of setting their SELinux label.
func (a *Agent) arrange() (unlabelled, err error) {
	done, err := a.Options.Settings.Keep()
	if err == nil && done.State != "" && done.State != install.AlreadyThere {
		a.Log.Info("node settings changed", "state", done.State, "path", a.Options.Settings.To, "from", done.From)
	}
	a.mu.Lock()
	before := a.ignored
	a.ignored = done.Ignored
	a.mu.Unlock()
	if done.Ignored != nil && (before == nil || before.Error() != done.Ignored.Error()) {
		a.Log.Warn("settings ignored", "error", done.Ignored)
	}
	return done.Warning, err
}

// note records the installed plugin, and logs and counts an installation.
func (a *Agent) note(done *install.Installation, err error) {
	now := done.Old // nil = none is installed
	if err == nil && done.State != install.AlreadyThere {
		now = &done.New
		a.metrics.installs.WithLabelValues(done.State).Inc()
		log := a.Log.With("state", done.State, "path", done.Path, "version", done.New.Version)
		if done.Old != nil {
			log = log.With("before", done.Old.Version)
		}
		log.Info("plugin changed")
	}
	a.plugin.Store(now)
}
