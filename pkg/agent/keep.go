package agent

import (
	"context"
	"errors"
	"fmt"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/install"
	"devinfo-cni.io/pkg/journal"
)

func (a *Agent) keep(ctx context.Context) {
	var unlabelled, err error
	if a.Settings != nil {
		unlabelled, err = a.arrange()
	}
	node, broken := a.Node() // whoever has put them there: with such settings the plugin refuses ADD
	var blind error
	if broken == nil {
		// Where Multus finds none it makes one with mode 000, which an agent without
		// CAP_DAC_OVERRIDE cannot read.
		if err := store.Open(node.DeviceInfoDir).Make(); err != nil {
			broken = fmt.Errorf("deviceInfoDir: %w", err)
		}
		blind = journal.Open(node.StateDir, a.BootID).EnsureDir()
	}
	a.report(Settings, errors.Join(err, broken))

	done, err := a.Options.Plugin.Keep(ctx)
	if ctx.Err() != nil {
		return // what was asked may have been cut short
	}
	a.note(done, err)
	if err == nil {
		a.report(Label, errors.Join(done.Warning, unlabelled))
		err = blind // the next plugin could not be let through, nor this one be taken away
	}
	a.report(Plugin, err)
}

// arrange puts the settings in place. unlabelled is the reason why they lack their SELinux label.
func (a *Agent) arrange() (unlabelled, err error) {
	done, err := a.Options.Settings.Keep()
	if err == nil && done.State != "" && done.State != install.AlreadyThere {
		a.Log.Info("node settings changed", "state", done.State, "path", a.Options.Settings.To, "from", done.From)
	}
	return done.Warning, err
}

// note keeps what is known of the plugin that is on the node.
func (a *Agent) note(done *install.Installation, err error) {
	now := done.Old // nil = there is none
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
