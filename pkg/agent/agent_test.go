package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/agent"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/nri/nritest"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

func TestAgentInstallsRestoresAndCounts(t *testing.T) {
	r := newRig(t)
	sandbox := filepath.Join(r.Injection.StageDir, "runs")
	r.must(os.MkdirAll(sandbox+"/devinfo", 0o755), os.Symlink(aliveNetns, sandbox+"/netns"))
	a, end := r.started()
	difftest.Eventually(t, "healthy", func() bool { return healthy(a) && metrics(t, a)["devinfo_injection_sandboxes"] == 1 })
	difftest.Eventually(t, "without a runtime", func() bool {
		return strings.Contains(errorOf(a, agent.NRI), "nri.sock: check that the container runtime runs with NRI enabled")
	})
	to := filepath.Join(r.Options.Plugin.Dir, install.Name)
	r.must(os.Remove(to))
	difftest.Eventually(t, "put again", func() bool {
		_, err := os.Stat(to)
		return err == nil && metrics(t, a)[`devinfo_plugin_installs_total{result="installed"}`] == 2
	})
	end()
	for name, want := range map[string]float64{
		`devinfo_plugin_info{journal_format="3",version="v1.2.0"}`: 1, `devinfo_agent_info{revision="c0ffee",version="v9"}`: 1,
		`devinfo_agent_component_healthy{component="settings"}`: 1, `devinfo_agent_component_healthy{component="plugin"}`: 1, `devinfo_agent_component_healthy{component="gc"}`: 1,
		`devinfo_agent_component_healthy{component="attachments"}`: 1, `devinfo_agent_component_healthy{component="nri"}`: 0, `devinfo_gc_runs_total{result="failed"}`: 0,
		`devinfo_injections_total{reason="late",result="rejected"}`: 0,
	} {
		if got, there := metrics(t, a)[name]; got != want || !there {
			t.Errorf("%s is %v, %v", name, got, there)
		}
	}
}

func TestComponentsContinueWhenOneFails(t *testing.T) {
	r := newRig(t)
	r.Options.Plugin.Dir = filepath.Join(r.dir, "none")
	r.Injection.StageDir = "/proc/none"
	r.put(r.dead("stale", "0000:03:00.2"))
	a, end := r.started()
	difftest.Eventually(t, "swept", func() bool {
		return len(r.left()) == 0 && errorOf(a, agent.GC) == "" && errorOf(a, agent.Attachments) == ""
	})
	difftest.Eventually(t, "without injection", func() bool { return strings.Contains(errorOf(a, agent.NRI), "/proc/none") })
	difftest.Contains(t, errorOf(a, agent.Plugin), "none: no such file or directory: set it to the directory where the container runtime looks for plugins")
	for _, c := range a.Checks() { // only plugin and settings affect readiness
		difftest.Same(t, c.Name, c.Optional, c.Name != agent.Plugin && c.Name != agent.Settings)
	}
	r.must(os.Mkdir(r.Options.Plugin.Dir, 0o755))
	difftest.Eventually(t, "healthy", func() bool { return healthy(a) })

	r.must(os.WriteFile(filepath.Join(r.dir, "settings/default.json"), []byte(`{"logLevel": "loud"}`), 0o644))
	difftest.Eventually(t, "refused", func() bool { return strings.Contains(errorOf(a, agent.Settings), `logLevel: "loud"`) })
	to := filepath.Join(r.Options.Plugin.Dir, install.Name)
	r.must(os.Remove(to))
	difftest.Eventually(t, "put again, by the old settings", func() bool {
		_, err := os.Stat(to)
		return err == nil && errorOf(a, agent.Plugin) == ""
	})
	for component, want := range map[string]float64{agent.Settings: 0, agent.Plugin: 1} {
		difftest.Same(t, component, metrics(t, a)[fmt.Sprintf("devinfo_agent_component_healthy{component=%q}", component)], want)
	}
	end()
	if text := r.log.String(); strings.LastIndex(text, `component healthy" component=settings`) > strings.LastIndex(text, "component=settings error=") {
		t.Errorf("refused settings are said to be healthy:\n%s", text)
	}
	for _, line := range []string{"component=plugin error=", "component=settings error="} {
		if n := strings.Count(r.log.String(), line); n < 1 || n > 2 { // once for each change, not for each check
			t.Errorf("the log has %d times %q", n, line)
		}
	}
	for line, want := range map[string]int{"node settings changed": 1, "removed leftovers": 1} {
		difftest.Same(t, line+" in the log", strings.Count(r.log.String(), line), want)
	}
}

func TestDisabledComponentsAreNotReported(t *testing.T) {
	r := newRig(t)
	difftest.Write(t, r.NodeConfig, difftest.Read(t, filepath.Join(r.dir, "settings/default.json")), 0o644)
	r.Options.Settings, r.Injection, r.SweepInterval = nil, nil, 0
	a := r.ranUntilHealthy()
	var names []string
	for _, c := range a.Checks() {
		names = append(names, c.Name)
	}
	difftest.Equal(t, names, []string{agent.Attachments, agent.Label, agent.Plugin, agent.Settings})
	got := metrics(t, a)
	_, injects := got["devinfo_injection_sandboxes"]
	difftest.Same(t, "metrics of injection", injects, false)
	difftest.Same(t, "sweeps", got[`devinfo_gc_runs_total{result="ok"}`]+got[`devinfo_gc_runs_total{result="failed"}`], 0.0)
	difftest.Write(t, r.NodeConfig, `{"logLevl": "info"}`, 0o644) // must not look like a node without attachments
	blind, _ := r.started()
	difftest.Eventually(t, "settings refused", func() bool { return strings.Contains(errorOf(blind, agent.Attachments), "logLevl") })
}

// Multus creates a missing directory with mode 000. The agent runs as root but lacks
// CAP_DAC_OVERRIDE, so it could not read that directory.
func TestDeviceInfoDirIsMadeReadable(t *testing.T) {
	r := newRig(t)
	readable := func() bool {
		stat, err := os.Stat(r.DeviceInfoDir)
		return err == nil && stat.Mode().Perm() == 0o755
	}
	a, end := r.started()
	difftest.Eventually(t, "healthy", func() bool { return healthy(a) })
	difftest.Same(t, "readable while the agent is healthy", readable(), true)
	r.must(os.Chmod(r.DeviceInfoDir, 0))
	difftest.Eventually(t, "mended", readable)
	end()
}

// The labels have the names that other exporters use, so that the metrics can be joined.
func TestAttachmentsHaveSeriesAndCounts(t *testing.T) {
	r := newRig(t)
	r.SweepInterval = 0
	again := vf("again", "0000:03:00.2", "eth4", "mlx5_2") // another sandbox of the same pod
	again.Args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-ok"
	orphan := vf("orphan", "0000:03:00.3", "eth5", "")
	orphan.BootID = "older"
	adding := vf("adding", "0000:03:00.3", "eth5", "")
	adding.Complete = false
	refused := journal.Entry{Key: journal.Key{ContainerID: "refused", Network: "net-b", IfName: "net1"}, Netns: aliveNetns, Refused: "pci-0000:03:00.2"}
	r.put(vf("ok", "0000:03:00.2", "eth4", "mlx5_2"), again, refused, vf("changed", "0000:03:00.4", "", ""), r.dead("leaked", "0000:03:00.3"), orphan, adding,
		journal.Entry{Key: journal.Key{ContainerID: "socket", Network: "net-b"}, Netns: aliveNetns, Complete: true,
			Device: journal.Identity{Type: "memif", ID: "/run/m.sock"}},
		journal.Entry{Key: journal.Key{ContainerID: "card", Network: "macvlan", IfName: "eth1"}, Netns: aliveNetns, Complete: true,
			Device: journal.Identity{Type: "pci", ID: "0000:03:00.0"}})
	r.must(os.Remove(filepath.Join(r.DeviceInfoDir, "changed")), os.WriteFile(filepath.Join(r.StateDir, "attachments/net-a@torn@net1"), []byte("torn"), 0o600),
		os.WriteFile(filepath.Join(r.StateDir, "attachments/net-a@newer@net1"), []byte(`{"format": 99}`), 0o600))

	a, end := r.started()
	difftest.Eventually(t, "counted", func() bool { return metrics(t, a)["devinfo_last_check_timestamp_seconds"] > 0 })
	end()
	got := metrics(t, a)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return !strings.HasPrefix(name, "devinfo_attachment") })
	want := map[string]float64{
		`devinfo_attachment_info{device="eth4",interface="net1",namespace="shop",network="net-a",pciAddr="0000:03:00.2",pf="p0",pod="web-ok",rdma_device="mlx5_2",type="pci",vf="0"}`: 1,
		`devinfo_attachment_info{interface="net1",namespace="shop",network="net-a",pciAddr="0000:03:00.4",pf="p0",pod="web-changed",type="pci",vf="2"}`:                               1,
		`devinfo_attachment_info{interface="net1",network="net-b",type="memif"}`:                                                                                                      1,
		`devinfo_attachment_info{device="p0",interface="eth1",network="macvlan",pciAddr="0000:03:00.0",type="pci"}`:                                                                   1,
		`devinfo_attachments{state="ok"}`: 4, `devinfo_attachments{state="changed"}`: 1, `devinfo_attachments{state="stale"}`: 2,
		`devinfo_attachments{state="orphaned"}`: 0, `devinfo_attachments{state="adding"}`: 1, `devinfo_attachments{state="corrupt"}`: 1,
		`devinfo_attachments{state="newer"}`: 1, `devinfo_attachments{state="unknown"}`: 0, "devinfo_attachments_omitted": 0,
	}
	difftest.Equal(t, got, want)

	r.MaxSeries = 1
	a, end = r.started()
	difftest.Eventually(t, "counted", func() bool { return metrics(t, a)["devinfo_attachments_omitted"] == 3 })
	end()
	got = metrics(t, a)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return !strings.HasPrefix(name, "devinfo_attachment_info") })
	difftest.Equal(t, len(got), 1)
}

func TestSweepLeavesAttachmentsWhoseDelegatesItCannotRun(t *testing.T) {
	r := newRig(t)
	calls := filepath.Join(r.dir, "calls")
	r.must(os.WriteFile(filepath.Join(r.dir, "bin/bridge"), []byte("#!/bin/sh\ntouch "+calls+"; sleep 1; echo $CNI_COMMAND $CNI_CONTAINERID >>"+calls+"\n"), 0o755))
	claimed := r.dead("claimed", "0000:03:00.5") // the agent does not see whether cni-dra-driver has still to run DEL
	claimed.Args += ";" + pod.ClaimArg + "=net"
	t.Setenv(state.DirVariable, filepath.Join(r.dir, "none/driver/state"))
	r.put(vf("alive", "0000:03:00.2", "", ""), claimed, r.dead("stale", "0000:03:00.3"), r.delegating())
	temp := filepath.Join(r.DeviceInfoDir, ".killed.devinfo")
	r.must(os.WriteFile(temp, nil, 0o600))

	a, end := r.started()
	difftest.Eventually(t, "swept", func() bool { return metrics(t, a)[`devinfo_gc_runs_total{result="ok"}`] > 1 })
	end()
	difftest.Equal(t, r.left(), []string{"alive", "claimed", "delegating"})
	difftest.Same(t, "temporary files", difftest.Files(t, temp), []string(nil))
	for name, want := range map[string]float64{
		`devinfo_gc_removed_total{kind="attachment"}`: 1, `devinfo_gc_removed_total{kind="file"}`: 1, "devinfo_gc_pending_attachments": 1,
	} {
		difftest.Same(t, name, metrics(t, a)[name], want)
	}

	r.HostRoot = "/"
	_, end = r.started()
	difftest.Eventually(t, "a delegate runs", func() bool { _, err := os.Stat(calls); return err == nil })
	end() // waits for the delegate, which would be killed together with the agent's container
	difftest.Equal(t, difftest.Read(t, calls), "DEL delegating\n")
	difftest.Equal(t, r.left(), []string{"alive", "claimed"})
}

// stage makes the directories of sandboxes, each with its network namespace, and returns their parent directory.
func (r *rig) stage(sandboxes map[string]string) (staged string) {
	r.t.Helper()
	staged = r.Injection.StageDir
	for sandbox, netns := range sandboxes {
		r.must(os.MkdirAll(filepath.Join(staged, sandbox, "devinfo"), 0o755), os.Symlink(netns, filepath.Join(staged, sandbox, "netns")))
	}
	return staged
}

// The runtime could not delete a pod if the plugin were missing.
func TestUninstallFailsWhileAttachmentsExist(t *testing.T) {
	r := newRig(t)
	a := r.ranUntilHealthy()
	nameless := vf("nameless", "0000:03:00.4", "", "")
	nameless.Args = ""
	r.put(vf("alive", "0000:03:00.2", "", ""), nameless, r.dead("stale", "0000:03:00.3"))
	r.must(os.WriteFile(filepath.Join(r.StateDir, "attachments/net-a@torn@net1"), []byte("torn"), 0o600))
	staged := r.stage(map[string]string{"ended": r.noNetns(), "runs": aliveNetns})
	files := []string{filepath.Join(r.dir, "bin/devinfo"), r.NodeConfig}
	refused := "the journal has 3 attachments: delete their pods first: pod shop/web-alive (net1, network net-a), " +
		"container nameless (net1, network net-a), attachment net-a/torn/net1 (or uninstall anyway with --force)"
	difftest.Says(t, a.Uninstall(t.Context(), false), refused)
	for _, name := range files {
		_, err := os.Stat(name)
		r.must(err)
	}
	r.must(a.Uninstall(t.Context(), true), a.Uninstall(t.Context(), true))
	for _, name := range files {
		difftest.Holds(t, filepath.Dir(name))
	}
	difftest.Holds(t, staged, "runs")
	// Without node.json, the agent finds the journal through the settings in the ConfigMap.
	difftest.Says(t, a.Uninstall(t.Context(), false), refused)
}

// cni-dra-driver reads them too. Its own uninstallation removes what the agent leaves to it.
func TestUninstallLeavesPluginAndSettingsToTheDriver(t *testing.T) {
	r := newRig(t)
	a := r.ranUntilHealthy()
	driver := &install.PluginFile{From: r.Options.Plugin.From, Dir: r.Options.Plugin.Dir, Newer: func(int) ([]string, error) { return nil, nil }, ForDriver: true}
	_, err := driver.Place(t.Context())
	r.must(err)
	for range 2 {
		r.must(a.Uninstall(t.Context(), false))
		difftest.Holds(t, driver.Dir, ".devinfo.cni-dra-driver.sha256", "devinfo")
		difftest.Holds(t, filepath.Dir(r.NodeConfig), ".node.json.sha256", "node.json")
	}
}

// A new node gets no plugin. A plugin that was installed without settings keeps the defaults, and the agent uses them too.
func TestFirstSettingsThatAreRefusedChangeNothing(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := newRig(t)
		r.must(unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, ""), unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
		settings := filepath.Join(r.dir, "settings/default.json")
		difftest.Write(t, settings, `{"logLevl": "info"}`, 0o644)
		a, _ := r.started()
		refused := func() bool { return strings.Count(errorOf(a, agent.Settings), "logLevl") > 0 }
		difftest.Eventually(t, "refused", func() bool { return refused() && strings.Contains(errorOf(a, agent.Plugin), "logLevl") })
		r.must(os.Remove(settings))
		difftest.Eventually(t, "healthy", func() bool { return healthy(a) })
		difftest.Write(t, settings, `{"logLevl": "info"}`, 0o644)
		difftest.Eventually(t, "refused again", refused)
		r.Node = config.DefaultNode()
		r.put(r.dead("stale", "0000:03:00.2"))
		difftest.Eventually(t, "swept, with one error", func() bool {
			return len(r.left()) == 0 && errorOf(a, agent.Attachments) == "" && errorOf(a, agent.Plugin) == "" && strings.Count(errorOf(a, agent.Settings), "logLevl") == 1
		})
	})
}

// The plugin then runs with the default settings, and thus with the journal in /var/lib/cni.
func TestUninstallIgnoresSettingsThatWereNotInstalled(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := newRig(t)
		a := r.ranUntilHealthy()
		entries := "/var/lib/cni/devinfo/attachments/"
		r.must(unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, ""), os.Remove(r.NodeConfig), os.MkdirAll(entries, 0o700))
		difftest.Write(t, filepath.Join(r.dir, "settings/default.json"), `{"logLevl": "info"}`, 0o644)
		difftest.Write(t, entries+"net-a@torn@net1", "torn", 0o600)
		difftest.Says(t, a.Uninstall(t.Context(), false), "the journal has 1 attachment")
		r.must(a.Uninstall(t.Context(), true), os.Remove(entries+"net-a@torn@net1"), a.Uninstall(t.Context(), false)) // then without the plugin
		difftest.Contains(t, r.log.String(), "settings ignored", "uninstalling although attachments may exist")
		difftest.Holds(t, filepath.Join(r.dir, "bin"))
	})
}

// The runtime removes the network namespace of the sandbox "ends" a moment after DEL. The sandbox "told" is still
// in use, because it has a device-info file of another program.
func TestUninstallRemovesDirectoriesOfEndingPods(t *testing.T) {
	r := newRig(t)
	a := r.ranUntilHealthy()
	staged := r.stage(map[string]string{"ends": aliveNetns, "told": aliveNetns})
	node, err := a.Node()
	r.must(err, os.MkdirAll(node.DeviceInfoDir, 0o755), os.WriteFile(filepath.Join(node.DeviceInfoDir, "net-a-told_net1"), []byte(`{"type":"pci"}`), 0o644))
	r.must(a.Uninstall(t.Context(), false), a.Uninstall(t.Context(), false))
	difftest.Holds(t, staged, "told")
}

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
		difftest.Eventually(t, "reported", func() bool {
			return strings.Contains(errorOf(a, agent.Label), "run restorecon on the node") && metrics(t, a)[`devinfo_agent_component_healthy{component="label"}`] == 0 &&
				errorOf(a, agent.Plugin) == ""
		})
		for _, c := range a.Checks() {
			difftest.Same(t, c.Name+" makes it not ready", !c.Optional && c.Ask() != nil, false)
		}
	})
}

func TestSettingsForOtherNodesAreReported(t *testing.T) {
	r := newRig(t)
	from := filepath.Join(r.dir, "settings/default.json")
	difftest.Write(t, r.NodeConfig, difftest.Read(t, from), 0o644)
	r.must(os.Rename(from, filepath.Join(r.dir, "settings/defaults.json")))
	a, _ := r.started()
	difftest.Eventually(t, "reported", func() bool { return strings.Contains(errorOf(a, agent.SettingsDir), "but has defaults.json") })
}

// A container's mount of a directory leads to that directory after the node has another one in its place.
func TestAgentEndsWhenADirectoryOfTheNodeIsRemoved(t *testing.T) {
	for _, name := range []string{"bin", "etc", "state", "info", "cdi", "sockets", "nri", "run/containers"} {
		r := newRig(t)
		r.SocketDirs = []string{filepath.Join(r.dir, "sockets")}
		r.settle()
		r.Options.Injection.Socket = filepath.Join(r.dir, "nri/nri.sock")
		path := filepath.Join(r.dir, name)
		r.must(os.RemoveAll(path), os.MkdirAll(filepath.Dir(path), 0o755), os.Mkdir(path+".was", 0o755), os.Symlink(path+".was", path))
		a := agent.New(r.Options)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		difftest.Eventually(t, "healthy", func() bool { return healthy(a) })
		mounted, err := os.Open(t.TempDir())
		r.must(err, os.Remove(mounted.Name()))
		defer mounted.Close()
		r.must(os.Symlink(fmt.Sprint("/proc/self/fd/", mounted.Fd()), path+".is"), os.Rename(path+".is", path))
		difftest.Says(t, <-ended, path+" was removed on the node")
	}
}

func TestAgentEndsWhenTheDirectoryOfNetworkNamespacesIsRemoved(t *testing.T) {
	r := newRig(t)
	linktest.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		r.must(os.MkdirAll(link.NetnsDir, 0o755), unix.Mount(dir, link.NetnsDir, "", unix.MS_BIND, ""))
		r.t = t
		a := agent.New(r.Options)
		ended := make(chan error, 1)
		go func() { ended <- a.Run(t.Context()) }()
		difftest.Eventually(t, "healthy", func() bool { return healthy(a) })
		r.must(os.Remove(dir))
		difftest.Says(t, <-ended, link.NetnsDir+" was removed on the node")
	})
}

// What cannot be read is not empty: the component says so, the metrics show what was read last, and nothing is uninstalled.
func TestWhatTheAgentCannotReadIsReported(t *testing.T) {
	for name, unhealthy := range map[string][]string{
		"sys": {agent.Attachments, agent.GC}, "state/attachments": {agent.Attachments, agent.GC}, "settings/default.json": {agent.Settings}, "info": {agent.GC, agent.Settings},
	} {
		r := newRig(t)
		r.put(vf("ok", "0000:03:00.2", "eth4", "mlx5_2"), r.delegating())
		a, end := r.started()
		counted := func() bool {
			got := metrics(t, a)
			return got[`devinfo_attachments{state="ok"}`] == 1 && got["devinfo_gc_pending_attachments"] == 1
		}
		difftest.Eventually(t, "counted", func() bool { return healthy(a) && counted() })
		path, away := filepath.Join(r.dir, name), filepath.Join(r.dir, "away")
		exchange := func() { r.must(unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, away, unix.RENAME_EXCHANGE)) } // it never lacks
		r.must(os.Symlink(filepath.Base(path), away))
		exchange()
		for _, component := range unhealthy {
			difftest.Eventually(t, component+" without "+name, func() bool { return strings.Contains(errorOf(a, component), path) })
		}
		if name == "state/attachments" || name == "sys" {
			difftest.Same(t, name+": counted", counted(), true)
		}
		difftest.Same(t, name, metrics(t, a)[`devinfo_gc_runs_total{result="failed"}`] > 0, slices.Contains(unhealthy, agent.GC))
		for _, c := range a.Checks() {
			difftest.Same(t, fmt.Sprint(name, " ", c.Name, ": ", c.Ask()), c.Ask() != nil, c.Name == agent.NRI || slices.Contains(unhealthy, c.Name))
		}
		difftest.Says(t, a.Uninstall(t.Context(), false))
		exchange()
		difftest.Eventually(t, "healthy again", func() bool { return healthy(a) })
		end()
		_, err := os.Stat(filepath.Join(r.Options.Plugin.Dir, install.Name))
		r.must(err)
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
	difftest.Eventually(t, "not ready", func() bool { return strings.Contains(errorOf(a, agent.Plugin), blind) })
	end()
	plugin := filepath.Join(r.Options.Plugin.Dir, install.Name)
	difftest.Says(t, a.Uninstall(t.Context(), false), blind)
	_, err := os.Stat(plugin)
	r.must(err, os.WriteFile(plugin, []byte("#!/bin/sh\n"), 0o755))
	a, end = r.started()
	difftest.Eventually(t, "not installed", func() bool {
		return strings.Contains(errorOf(a, agent.Plugin), "can read the journal's entries: "+blind)
	})
	end()
	r.must(a.Uninstall(t.Context(), true))

	r.must(os.Remove(plugin))
	difftest.Write(t, r.NodeConfig, difftest.Read(t, filepath.Join(r.dir, "settings/default.json")), 0o644)
	r.must(a.Uninstall(t.Context(), false)) // succeeds, because the plugin does not exist
}

func TestScrapeDuringACheckIncludesThePlugin(t *testing.T) {
	r := newRig(t)
	a := agent.New(r.Options)
	newer, checking, scraped := r.Options.Plugin.Newer, make(chan struct{}, 100), make(chan struct{}, 1)
	scraped <- struct{}{} // before the installation
	r.Options.Plugin.Newer = func(than int) ([]string, error) {
		checking <- struct{}{}
		<-scraped
		return newer(than)
	}
	defer r.run(a)()
	<-checking
	difftest.Eventually(t, "healthy", func() bool { return healthy(a) })
	r.must(os.Truncate(filepath.Join(r.Options.Plugin.Dir, install.Name), 0))
	<-checking
	difftest.Same(t, "the plugin", metrics(t, a)[`devinfo_plugin_info{journal_format="3",version="v1.2.0"}`], 1.0)
	close(scraped)
}

func TestOrphanedAttachmentsAreCountedAndLogged(t *testing.T) {
	r := newRig(t)
	adding := vf("adding", "0000:03:00.4", "", "")
	adding.Complete = false
	byHand := journal.Entry{Key: journal.Key{ContainerID: "by-hand", Network: "net-b"}, Netns: aliveNetns, Complete: true}
	for _, e := range []journal.Entry{vf("lost", "0000:03:00.2", "", ""), vf("known", "0000:03:00.3", "", ""), adding, byHand} {
		e.Time = time.Now().Add(-time.Hour)
		r.put(e)
	}
	nritest.Serve(t, r.Injection.Socket, []*adaptation.PodSandbox{{Id: "known"}})
	a, end := r.started()
	difftest.Eventually(t, "counted", func() bool { return metrics(t, a)[`devinfo_attachments{state="orphaned"}`] == 2 })
	at := metrics(t, a)["devinfo_last_check_timestamp_seconds"]
	difftest.Eventually(t, "counted again", func() bool {
		return metrics(t, a)["devinfo_last_check_timestamp_seconds"] > at && errorOf(a, agent.NRI) == ""
	})
	end()
	difftest.Same(t, "the connection after the agent's end", errorOf(a, agent.NRI), "")
	got := metrics(t, a)
	difftest.Same(t, "others", []float64{got[`devinfo_attachments{state="ok"}`] + got[`devinfo_attachments{state="changed"}`], got[`devinfo_attachments{state="adding"}`]}, []float64{2, 0})
	const lost = `devinfo_attachment_info{interface="net1",namespace="shop",network="net-a",pciAddr="0000:03:00.2",pf="p0",pod="web-lost",type="pci",vf="0"}`
	difftest.Same(t, "the device of an orphaned attachment, which is still in use", got[lost], 1.0)
	difftest.Same(t, "times that the log names the orphaned attachments", strings.Count(r.log.String(), `attachments="[net-a/adding/net1 net-a/lost/net1]"`), 1)
}

// A table of the documentation lists the metrics. The second cell of a metric with a label contains `label`: value,
// value.
func TestDocumentedMetricsMatchExposedMetrics(t *testing.T) {
	r := newRig(t)
	r.put(vf("ok", "0000:03:00.2", "eth4", "mlx5_2"))
	a := r.ranUntilHealthy()
	text := strings.Join(difftest.Pages(t, "../../docs"), "\n")
	exposed, documented, listed := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(devinfo_[a-z_]+)` \\| (.*) \\|$").FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(row[1], "devinfo_dra_") {
			continue
		}
		documented[row[1]] = true
		words, _, _ := strings.Cut(row[2], " | ")
		label, values, has := strings.Cut(words, ": ")
		if label[0] != '`' { // the metric has no label
			continue
		}
		for _, found := range regexp.MustCompile("`([A-Za-z_]+)`").FindAllStringSubmatch(label, -1) {
			documented[row[1]+" "+found[1]] = true
			for value := range strings.SplitSeq(values, ", ") {
				documented[row[1]+" "+found[1]+" "+value], listed[row[1]+" "+found[1]] = true, has
			}
		}
	}
	for _, family := range gather(t, a) {
		exposed[family.GetName()] = true
		for _, m := range family.Metric {
			for _, p := range m.Label {
				label, value := family.GetName()+" "+p.GetName(), ""
				if listed[label] {
					value = p.GetValue()
				}
				exposed[label], exposed[label+" "+value] = true, true
			}
		}
	}
	difftest.Same(t, "documented for exposed", documented, exposed)
}
