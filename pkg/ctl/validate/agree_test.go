package validate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	plugin "devinfo-cni.io/plugins/devinfo"
	"devinfo-cni.io/plugins/devinfo/delegate"
	"devinfo-cni.io/test/difftest"
)

// A node runs the plugin's ADD on a captured host.
type node struct {
	bin    string // CNI_PATH
	state  string // directory
	finder discovery.Finder
	netns  string
	adds   int
}

const device = "0000:3b:00.2" // a VF of that host

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{bin: t.TempDir(), state: t.TempDir(), netns: "/proc/self/ns/net", finder: *checktest.Finder(t, capturetest.Load(t, "mlx5-legacy"))}
	const macvlan = "#!/bin/sh\n" + `echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "net7", "sandbox": "/proc/self/ns/net"}]}'`
	must(t, os.WriteFile(filepath.Join(n.bin, "macvlan"), []byte(macvlan), 0o755))
	return n
}

func (n *node) checker() validate.Checker {
	return validate.Checker{Find: func(name string) error {
		_, err := os.Stat(filepath.Join(n.bin, name))
		return err
	}}
}

// add returns the reason why ADD refuses a plugin's configuration; "" = ADD accepts it.
func (n *node) add(t *testing.T, conf map[string]json.RawMessage) string {
	t.Helper()
	stdin, err := json.Marshal(conf)
	must(t, err)
	settings := config.DefaultNode()
	settings.DeviceInfoDir, settings.DevicePluginDir, settings.StateDir, settings.CDIDir = n.state+"/infos", n.state+"/pool", n.state+"/state", n.state+"/cdi"
	env := map[string]string{
		"CNI_COMMAND": "ADD", "CNI_CONTAINERID": fmt.Sprintf("container%d", n.adds), "CNI_NETNS": n.netns, "CNI_NETNS_OVERRIDE": "1",
		"CNI_IFNAME": "net7", "CNI_PATH": n.bin, "CNI_ARGS": "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_UID=c",
	}
	var stdout, stderr bytes.Buffer
	p := plugin.New(settings, n.finder, "boot", &stdout, slog.New(slog.DiscardHandler))
	if exit := new(delegate.Delegates).Run(p, func(key string) string { return env[key] }, bytes.NewReader(stdin), &stderr); exit == 0 {
		return ""
	}
	var e types.Error
	must(t, json.Unmarshal(stdout.Bytes(), &e))
	return strings.TrimSuffix(fmt.Sprintf("%d: %s; %s", e.Code, e.Msg, e.Details), "; ")
}

// handed returns the configurations that a runtime passes to each devinfo of a network. resource means that Multus
// has a device for the network.
func (n *node) handed(t *testing.T, network string, multus, resource bool) (confs []map[string]json.RawMessage) {
	t.Helper()
	var list map[string]json.RawMessage
	plugins := []map[string]json.RawMessage{{}}
	must(t, json.Unmarshal([]byte(network), &list))
	if list["plugins"] != nil {
		must(t, json.Unmarshal(list["plugins"], &plugins))
	} else {
		must(t, json.Unmarshal([]byte(network), &plugins[0]))
	}
	for at, conf := range plugins {
		if string(conf["type"]) != `"devinfo"` {
			continue
		}
		conf["name"], conf["cniVersion"] = list["name"], list["cniVersion"]
		if at > 0 {
			conf["prevResult"] = json.RawMessage(`{"cniVersion": "1.0.0", "interfaces": [{"name": "net7", "sandbox": "` + n.netns + `"}]}`)
		}
		if multus && resource && conf["deviceID"] == nil && conf["pciBusID"] == nil {
			conf["deviceID"], conf["pciBusID"] = quoted(device), quoted(device)
		}
		var capabilities map[string]bool
		_ = json.Unmarshal(conf["capabilities"], &capabilities) // ADD reports an error
		runtime := map[string]json.RawMessage{}
		n.adds++
		if capabilities["CNIDeviceInfoFile"] && (!multus || resource) {
			runtime["CNIDeviceInfoFile"] = quoted(fmt.Sprintf("%s/infos/file%d", n.state, n.adds))
		}
		if capabilities["deviceID"] && (!multus || resource) {
			runtime["deviceID"] = quoted(device)
		}
		conf["runtimeConfig"], _ = json.Marshal(runtime)
		confs = append(confs, conf)
	}
	return confs
}

func quoted(s string) json.RawMessage { return json.RawMessage(`"` + s + `"`) }

var must = difftest.Must

// networks are configurations, each with a title. "@" stands for a devinfo that requests the path of its file.
var networks = []string{
	`chained: {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "macvlan"}, {@}]}`,
	`first, before macvlan: {"cniVersion": "1.0.0", "name": "n", "plugins": [{@}, {"type": "macvlan"}]}`,
	`first, before sriov: {"cniVersion": "1.0.0", "name": "n", "plugins": [{@}, {"type": "tuning"}, {"type": "sriov"}]}`,
	`first, with the capability deviceID: {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}}, {"type": "sriov"}]}`,
	`first, with a deviceID: {"cniVersion": "1.0.0", "name": "n", "plugins": [{@, "deviceID": "0000:3b:00.2"}, {"type": "sriov"}]}`,
	`alone: {"cniVersion": "1.0.0", "name": "n", @}`,
	`a device: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2"}`,
	`a short PCI address: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "3b:00.2"}`,
	`a short PCI bus ID, chained: {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "macvlan"}, {@, "pciBusID": "3b:00.2"}]}`,
	`an opaque ID: {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "macvlan"}, {@, "deviceID": "gpu-1"}]}`,
	`an empty declaration: {"cniVersion": "1.0.0", "name": "n", @, "deviceInfo": {}}`,
	`a declaration without a type: {"cniVersion": "1.0.0", "name": "n", @, "deviceInfo": {"version": "1.1.0"}}`,
	`a declaration: {"cniVersion": "1.0.0", "name": "n", @, "deviceInfo": {"vhost-user": {"mode": "client", "path": "/run/s"}}}`,
	`no device, an incomplete declaration: {"cniVersion": "1.0.0", "name": "n", @, "deviceInfo": {"type": "vhost-user", "vhost-user": {"mode": "client"}}}`,
	`a wrong declaration: {"cniVersion": "1.0.0", "name": "n", @, "deviceInfo": {"type": "vhost-user", "vhost-user": {"mode": "peer", "path": "/run/s"}}}`,
	`two maps: {"cniVersion": "1.0.0", "name": "n", @, "deviceInfo": {"pci": {"pci-address": "0000:3b:00.2"}, "vdpa": {}}}`,
	`an unknown placeholder: {"cniVersion": "1.0.0", "name": "n", @, "deviceInfo": {"type": "vhost-user", "vhost-user": {"mode": "server", "path": "/{pod}"}}}`,
	`a delegate: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [{"type": "macvlan"}]}`,
	`no delegates: {"cniVersion": "1.0.0", "name": "n", @, "delegates": []}`,
	`a delegate that is not installed: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [{"type": "ipvlan"}]}`,
	`a delegate that is devinfo: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [{"type": "devinfo"}]}`,
	`a delegate without a type: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [{"master": "eth0"}]}`,
	`a delegate whose ipam is no object: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [{"type": "macvlan", "ipam": "dhcp"}]}`,
	`a delegate whose dns is wrong: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [{"type": "macvlan", "dns": {"nameservers": "10.0.0.1"}}]}`,
	`a delegate's capabilities are a list: {"cniVersion": "1.0.0", "name": "n", @, "delegates": [{"type": "macvlan", "capabilities": ["mac"]}]}`,
	`a version that does not exist: {"cniVersion": "1.2.0", "name": "n", "plugins": [{"type": "macvlan"}, {@}]}`,
	`a bad name: {"cniVersion": "1.0.0", "name": "-n", "plugins": [{"type": "macvlan"}, {@}]}`,
	`a wrong value: {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "macvlan"}, {@, "strict": "yes"}]}`,
	`strict, and no path is asked for: {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "macvlan"}, {"type": "devinfo", "strict": true}]}`,
	`strict, and no path but by Multus: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2", "strict": true}`,
	`two devices: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2", "pciBusID": "0000:3b:00.3"}`,
	`two devices, one of them declared: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2", "deviceInfo": {"pci": {"pci-address": "0000:ff:00.3"}}}`,
	`one device, spelt twice: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2", "deviceInfo": {"pci": {"pci-address": "0000:3B:00.2"}}}`,
	`a device beside a socket: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2", "pciBusID": "0000:3b:00.3", "deviceInfo": {"vhost-user": {"mode": "client", "path": "/run/s"}}}`,
	`a resource that no file can be named after: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2", "resourceName": "../vf"}`,
	`no device, strict, a declaration without address: {"cniVersion": "1.0.0", "name": "n", @, "strict": true, "deviceInfo": {"pci": {"rdma-device": "mlx5_0"}}}`,
	`a prevResult that is none: {"cniVersion": "1.0.0", "name": "n", @, "prevResult": {"cniVersion": "9.0.0"}}`,
	`a bad CDI kind: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2", "cdi": {"kind": "net"}}`,
	`a CDI name that is not the pod's own: {"cniVersion": "1.0.0", "name": "n", @, "deviceID": "0000:3b:00.2", "cdi": {"name": "net"}}`,
	`an unknown key: {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "macvlan"}, {@, "Strict": true}]}`,
}

// validate reports an error exactly if ADD refuses the configuration: in a file on the node, and in a
// NetworkAttachmentDefinition with and without a device.
func validateFindsWhatADDRefuses(t *testing.T, said *messages) {
	n := newNode(t)
	for _, row := range networks {
		name, network, _ := strings.Cut(row, ": ")
		network = strings.ReplaceAll(network, "@", `"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true}`)
		for _, form := range []struct {
			name             string
			multus, resource bool
		}{{"file", false, false}, {"definition", true, false}, {"definition with a device", true, true}} {
			if form.resource && strings.HasPrefix(name, "no device") { // ADD may fail for another reason
				continue
			}
			t.Run(name+"/"+form.name, func(t *testing.T) {
				text := network
				if form.multus {
					annotations := map[string]string{}
					if form.resource {
						annotations["k8s.v1.cni.cncf.io/resourceName"] = "example.com/vf"
					}
					text = string(marshal(t, map[string]any{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
						"metadata": map[string]any{"name": "n", "annotations": annotations}, "spec": map[string]string{"config": network}}))
				}
				report := one(t, n.checker(), text, "")
				var refused []string
				for _, conf := range n.handed(t, network, form.multus, form.resource) {
					if why := n.add(t, conf); why != "" {
						refused = append(refused, why)
					}
				}
				if title := name + ", " + form.name; !form.multus || strings.HasPrefix(name, "alone") || name == "chained" {
					said.add(title, strings.NewReplacer(n.bin, "CNI_PATH", n.state, "STATE"), "ADD", refused, "validate", foundIn(report))
				}
				if len(refused) > 0 != (report.Errors() > 0) {
					t.Errorf("ADD refuses: %s\nvalidate finds: %v", slices.Concat(refused), report.Findings)
				}
			})
		}
	}
}
