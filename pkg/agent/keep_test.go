package agent_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/agent"
	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/install"
	"devinfo-cni.io/pkg/link/linktest"
)

// The plugin works without the label. A node that needs restorecon(8) must not block the rollout to other nodes.
func TestFailedLabelDoesNotAffectReadiness(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := newRig(t)
		r.Options.Plugin.Dir = "/run"
		err := unix.Setxattr("/run", "security.selinux", []byte(strings.Repeat("x", 5000)), 0) // longer than the labels of any policy
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) {
			t.Skip("no label can be set here: ", err)
		}
		r.must(err)
		a, _ := r.started()
		eventually(t, "reported", func() bool {
			return strings.Contains(errorOf(a, agent.Label), "run restorecon on the node") && metrics(t, a)[`devinfo_agent_component_healthy{component="label"}`] == 0 &&
				errorOf(a, agent.Plugin) == ""
		})
		for _, c := range a.Checks() {
			if !c.Optional && c.Ask() != nil {
				t.Errorf("not ready: %s", c.Name)
			}
		}
	})
}

func TestIgnoredSettingsAreLoggedAtEachChange(t *testing.T) {
	r := newRig(t)
	var log bytes.Buffer
	r.Log = slog.New(slog.NewTextHandler(&log, nil))
	settings, plugin := filepath.Join(r.dir, "settings"), filepath.Join(r.Options.Plugin.Dir, install.Name)
	difftest.Write(t, r.NodeConfig, difftest.Read(t, filepath.Join(settings, "default.json")), 0o644)
	r.must(os.Rename(filepath.Join(settings, "default.json"), filepath.Join(settings, "defaults.json")))
	a, end := r.started()
	for _, file := range []string{"defaults.json", "n2.json", "n3.json"} {
		difftest.Write(t, filepath.Join(settings, file), "{}", 0o644)
		eventually(t, "reported", func() bool { err := a.IgnoredSettings(); return err != nil && strings.Contains(err.Error(), file) })
		for range 2 { // the second time by another check
			_ = os.Remove(plugin)
			eventually(t, "restored", func() bool { _, err := os.Stat(plugin); return err == nil })
		}
	}
	end()
	if n := strings.Count(log.String(), "settings ignored"); n != 3 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}

// The agent cannot create stateDir, as if it were not mounted into the agent's container.
func TestUnreachableJournalPreventsReadinessAndUninstall(t *testing.T) {
	r := newRig(t)
	a := r.ranUntilHealthy()
	r.StateDir = "/proc/none/state"
	r.settle()
	const blind = "stateDir: /proc/none/state does not exist and cannot be created"
	a, end := r.started()
	eventually(t, "not ready", func() bool { return strings.Contains(errorOf(a, agent.Plugin), blind) })
	end()
	plugin := filepath.Join(r.Options.Plugin.Dir, install.Name)
	difftest.Says(t, a.Uninstall(t.Context(), false), blind)
	_, err := os.Stat(plugin)
	r.must(err, os.WriteFile(plugin, []byte("#!/bin/sh\n"), 0o755))
	a, end = r.started()
	eventually(t, "not installed", func() bool {
		return strings.Contains(errorOf(a, agent.Plugin), "can read the journal's entries: "+blind)
	})
	end()
	r.must(a.Uninstall(t.Context(), true))

	r.must(os.Remove(plugin))
	difftest.Write(t, r.NodeConfig, difftest.Read(t, filepath.Join(r.dir, "settings/default.json")), 0o644)
	r.must(a.Uninstall(t.Context(), false)) // succeeds, because the plugin does not exist
}

// withPlugin is a registerer that keeps the collector of devinfo_plugin_info.
type withPlugin struct {
	prometheus.Registerer
	prometheus.Collector
}

func (w *withPlugin) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		has := collected(c)
		for close(has); len(has) > 0; {
			if strings.Contains((<-has).Desc().String(), `"devinfo_plugin_info"`) {
				w.Collector = c
			}
		}
	}
}

func collected(c prometheus.Collector) chan prometheus.Metric {
	to := make(chan prometheus.Metric, 99)
	c.Collect(to)
	return to
}

// The agent examines the file again after each change, including a change of its times.
func TestScrapeAlwaysIncludesThePlugin(t *testing.T) {
	r := newRig(t)
	r.CheckInterval = time.Millisecond
	a, end := r.started()
	defer end()
	eventually(t, "healthy", func() bool { return healthy(a) && metrics(t, a)["devinfo_last_check_timestamp_seconds"] > 0 })
	var w withPlugin
	a.Register(&w, build.Info{})
	want, began := len(collected(w)), time.Now()
	for n := 0; time.Since(began) < time.Second; n++ {
		if n%1000 == 0 {
			r.must(os.Chtimes(filepath.Join(r.Options.Plugin.Dir, install.Name), time.Time{}, time.Now()))
		}
		if got := len(collected(w)); got != want {
			t.Fatalf("scrape %d has %d series, not %d", n, got, want)
		}
	}
}
