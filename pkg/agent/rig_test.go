package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/agent"
	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

const boot = "boot-1"

// aliveNetns is a network namespace that exists as long as the test.
const aliveNetns = "/proc/self/ns/net"

// rig is a node for an agent, with directories of its own and the devices of a captured host.
type rig struct {
	t testing.TB
	config.Node
	agent.Options
	dir string
	log difftest.Log
}

func newRig(t testing.TB) *rig {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	r := &rig{t: t, Node: config.DefaultNode(), dir: dir}
	r.DeviceInfoDir, r.DevicePluginDir, r.CDIDir, r.StateDir, r.Sysfs = at("info"), at("dp"), at("cdi"), at("state"), at("sys")
	r.must(capturetest.Load(t, "mlx5-switchdev").Unpack(r.Sysfs), os.Mkdir(at("bin"), 0o755), os.Mkdir(at("netns"), 0o755))
	r.settle()
	r.Options = agent.Options{
		Plugin: &install.PluginFile{From: filepath.Join(undertest.Once(t, "v1.2.0", "../../cmd/devinfo"), install.Name), Dir: at("bin")}, NodeConfig: at("etc/node.json"), BootID: boot, CNIPath: at("bin"),
		Settings:      &install.Settings{Dir: at("settings"), Node: "n1", To: at("etc/node.json")},
		Injection:     &inject.Config{StageDir: at("run/containers"), MissingInfo: inject.Allow, Socket: at("nri.sock"), Index: "60"},
		CheckInterval: 20 * time.Millisecond, SweepInterval: 20 * time.Millisecond, LookInterval: 20 * time.Millisecond, MaxSeries: 100,
		Log: slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &r.log), nil)),
	}
	return r
}

// settle writes the node's settings.
func (r *rig) settle() {
	r.t.Helper()
	settings, err := json.Marshal(r.Node)
	r.must(err)
	difftest.Write(r.t, filepath.Join(r.dir, "settings/default.json"), string(settings), 0o644)
}

func TestMain(m *testing.M) { undertest.Temp(m) }

func (r *rig) must(errs ...error) {
	r.t.Helper()
	difftest.Must(r.t, errs...)
}

// put records attachments with [checktest.Record].
func (r *rig) put(entries ...journal.Entry) {
	r.t.Helper()
	for _, e := range entries {
		checktest.Record(r.t, r.Node, boot, e)
	}
}

// vf returns the attachment of a pod to a VF. Its device-info file has the given fields.
func vf(container, address, representor, rdma string) journal.Entry {
	info := &devinfo.Info{Type: devinfo.TypePCI, Version: "1.1.0", PCI: &devinfo.PCI{
		Address: address, PFAddress: "0000:03:00.0", Representor: representor, RDMADevice: rdma,
	}}
	return journal.Entry{
		Key: journal.Key{ContainerID: container}, Netns: aliveNetns, File: container, Complete: true,
		Info: info.Encode(), Device: journal.Identity{Type: "pci", ID: address},
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-" + container,
	}
}

// noNetns returns the path of a network namespace that does not exist.
func (r *rig) noNetns() string { return filepath.Join(r.dir, "netns", "gone") }

// dead returns the attachment of a container whose network namespace does not exist.
func (r *rig) dead(container, address string) journal.Entry {
	e := vf(container, address, "", "")
	e.Netns = r.noNetns()
	return e
}

// delegating returns one whose delegate has to run DEL.
func (r *rig) delegating() journal.Entry {
	e := r.dead("delegating", "0000:03:00.4")
	e.CNIVersion, e.Delegates = "1.0.0", []json.RawMessage{json.RawMessage(`{"cniVersion": "1.0.0", "name": "net-a", "type": "bridge"}`)}
	return e
}

func (r *rig) left() []string { return checktest.Containers(r.t, r.Node) }

// started runs an agent until the test ends or end is called.
func (r *rig) started() (a *agent.Agent, end func()) {
	r.t.Helper()
	a = agent.New(r.Options)
	return a, r.run(a)
}

// run is started for an agent that the test has changed.
func (r *rig) run(a *agent.Agent) (end func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{})
	go func() {
		a.Run(ctx)
		close(ended)
	}()
	end = func() {
		cancel()
		<-ended
	}
	r.t.Cleanup(end)
	return end
}

// ranUntilHealthy runs an agent until it is healthy and returns it.
func (r *rig) ranUntilHealthy() *agent.Agent {
	r.t.Helper()
	a, end := r.started()
	defer end()
	difftest.Eventually(r.t, "healthy", func() bool { return healthy(a) })
	return a
}

// metrics returns the values of a scrape by name and labels, such as `name{a="b"}`.
func metrics(t *testing.T, a *agent.Agent) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for _, family := range gather(t, a) {
		for _, m := range family.Metric {
			var labels []string
			for _, p := range m.Label {
				if p.GetValue() != "" {
					labels = append(labels, fmt.Sprintf("%s=%q", p.GetName(), p.GetValue()))
				}
			}
			name := family.GetName()
			if labels != nil {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

func gather(t *testing.T, a *agent.Agent) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	a.Register(registry, build.Info{Version: "v9", Revision: "c0ffee"})
	families, err := registry.Gather()
	difftest.Must(t, err)
	return families
}

// healthy reports whether all components except the connection to the runtime are healthy.
func healthy(a *agent.Agent) bool {
	for _, c := range a.Checks() {
		if c.Name != agent.NRI && c.Ask() != nil {
			return false
		}
	}
	return true
}

// errorOf returns the error of a component, or "" if it is healthy.
func errorOf(a *agent.Agent, component string) string {
	for _, c := range a.Checks() {
		if err := c.Ask(); c.Name == component && err != nil {
			return err.Error()
		}
	}
	return ""
}
