//go:build vm

package vm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// The plugin's default directories.
const (
	infoDir  = "/var/run/k8s.cni.cncf.io/devinfo/cni"
	poolDir  = "/var/run/k8s.cni.cncf.io/devinfo/dp"
	stateDir = "/var/lib/cni/devinfo"
	plugins  = "/opt/cni/bin"
)

// A network is a network configuration and its runtime, libcni with its own cache.
type network struct {
	t     *testing.T
	cni   *libcni.CNIConfig
	list  *libcni.NetworkConfigList
	lines bytes.Buffer // standard error of the plugins
}

// newNetwork returns a network with a list of plugin configurations, a name and CNI version 1.1.0. The end of the
// test checks that no state remains.
func newNetwork(t *testing.T, name, pluginList string) *network {
	t.Helper()
	return newNetworkOf(t, fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": %q, "plugins": %s}`, name, pluginList))
}

func newNetworkOf(t *testing.T, config []byte) *network {
	t.Helper()
	list, err := libcni.NetworkConfFromBytes(config)
	must(t, err)
	n := &network{t: t, list: list}
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{plugins}, t.TempDir(), n.exec())
	t.Cleanup(func() {
		nothingBut(t, infoDir)
		nothingBut(t, stateDir)
	})
	return n
}

// exec runs plugins, and records their standard error.
func (n *network) exec() invoke.Exec {
	return &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: &n.lines}, PluginDecoder: version.PluginDecoder{}}
}

// warnings returns the plugins' standard error since the last call, without times and remedies.
func (n *network) warnings() string {
	defer n.lines.Reset()
	return strings.TrimSpace(regexp.MustCompile(`(?m)^time=\S+ | remedy=".*"$`).ReplaceAllString(n.lines.String(), ""))
}

// silent fails the test if the plugins have printed a warning.
func (n *network) silent() {
	n.t.Helper()
	same(n.t, "standard error", n.warnings(), "")
}

// An attachment is one pod's interface in the network.
type attachment struct {
	*network
	rt     *libcni.RuntimeConf
	result types.Result // result of ADD
}

// attachment creates a pod, whose name is also the container ID. deviceID may be "".
func (n *network) attachment(podName, ifName, deviceID string) *attachment {
	n.t.Helper()
	capabilities := map[string]any{"CNIDeviceInfoFile": infoDir + "/" + n.list.Name + "-" + podName + "_" + ifName}
	if deviceID != "" {
		capabilities["deviceID"] = deviceID
	}
	return &attachment{network: n, rt: &libcni.RuntimeConf{
		ContainerID: podName, NetNS: pod(n.t, podName), IfName: ifName, CapabilityArgs: capabilities,
	}}
}

func (a *attachment) path() string { return a.rt.CapabilityArgs["CNIDeviceInfoFile"].(string) }

// attach runs ADD, which must succeed, and returns its result in sorted form.
func (a *attachment) attach() string {
	a.t.Helper()
	result, err := a.cni.AddNetworkList(context.Background(), a.list, a.rt)
	if err != nil {
		a.t.Fatalf("ADD: %s\n%s", fullText(err), a.warnings())
	}
	a.result = result
	raw, err := json.Marshal(result)
	must(a.t, err)
	return sorted(a.t, string(raw))
}

// add compares the result of ADD with JSON, where MAC stands for any address. The order of keys does not matter, because
// libcni does not keep it.
func (a *attachment) add(want string) {
	a.t.Helper()
	result := a.attach()
	if strings.Contains(want, `"MAC"`) {
		result = regexp.MustCompile(`([0-9a-f]{2}:){5}[0-9a-f]{2}`).ReplaceAllString(result, "MAC")
	}
	same(a.t, "result", result, sorted(a.t, want))
}

func (a *attachment) check() {
	a.t.Helper()
	if err := a.cni.CheckNetworkList(context.Background(), a.list, a.rt); err != nil {
		a.t.Fatalf("CHECK: %s\n%s", fullText(err), a.warnings())
	}
}

func (a *attachment) tryDel() error {
	return a.cni.DelNetworkList(context.Background(), a.list, a.rt)
}

// del deletes the attachment. Runtimes repeat DEL, but the second DEL of host-device fails. A second DEL of devinfo
// with the result of ADD and without delegates must succeed.
func (a *attachment) del() {
	a.t.Helper()
	if err := a.tryDel(); err != nil {
		a.t.Fatalf("DEL: %s\n%s", fullText(err), a.warnings())
	}
	at := slices.IndexFunc(a.list.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Type == "devinfo" })
	if a.result != nil && at > 0 {
		conf, err := libcni.InjectConf(a.list.Plugins[at], map[string]any{"name": a.list.Name, "cniVersion": a.list.CNIVersion, "prevResult": a.result})
		must(a.t, err)
		if err := a.cni.DelNetwork(context.Background(), conf, a.rt); err != nil {
			a.t.Fatalf("second DEL: %s\n%s", fullText(err), a.warnings())
		}
	}
	if exists(a.path()) {
		a.t.Errorf("%s is still there", a.path())
	}
}

// passes runs ADD with this result and device-info file, CHECK and DEL. All must succeed without a warning.
func (a *attachment) passes(result, info string) {
	a.t.Helper()
	a.warns(result, info)
	a.silent()
}

// warns is passes, but the plugins may print warnings.
func (a *attachment) warns(result, info string) {
	a.t.Helper()
	a.add(result)
	a.file(info)
	a.check()
	a.del()
}

// file compares the device-info file with JSON, ignoring white space. The file must end in a newline.
func (a *attachment) file(want string) {
	a.t.Helper()
	data, err := os.ReadFile(a.path())
	must(a.t, err)
	if !bytes.HasSuffix(data, []byte("}\n")) {
		a.t.Errorf("%s does not end in a newline", a.path())
	}
	same(a.t, a.path(), indent(a.t, string(data)), indent(a.t, want))
}

// fullText returns an error with code and details.
func fullText(err error) string {
	var e *types.Error
	if errors.As(err, &e) {
		return fmt.Sprintf("%d: %s: %s", e.Code, e.Msg, e.Details)
	}
	return fmt.Sprint(err)
}

// indent formats JSON and keeps the order of keys.
func indent(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(strings.TrimSpace(text)), "", "  "); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out.String()
}

// sorted formats JSON with sorted keys.
func sorted(t *testing.T, text string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	out, err := json.MarshalIndent(value, "", "  ")
	must(t, err)
	return string(out)
}
