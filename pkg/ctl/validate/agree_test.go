package validate_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	plugin "devinfo-cni.io/plugins/devinfo"
	"devinfo-cni.io/test/difftest"
)

// A node attaches networks as a container runtime with libcni does. It runs the plugin devinfo on a captured host.
// Other plugins of a chain return an interface; delegates are programs in bin.
type node struct {
	version.PluginDecoder
	bin      string // CNI_PATH
	state    string // directory
	finder   discovery.Finder
	netns    string
	adds     int
	ran      bool // the last network has a devinfo that was called
	pathless bool // one that was called without a path for the device-info file
	log      bytes.Buffer
	fileless bool // one that wrote no device-info file although it got a path, and its configuration declares a device
}

const device = "0000:3b:00.2" // a VF of that host

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{bin: t.TempDir(), state: t.TempDir(), netns: "/proc/self/ns/net", finder: *checktest.Finder(t, capturetest.Load(t, "mlx5-legacy"))}
	const macvlan = "#!/bin/sh\n" + `echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "net7", "sandbox": "/proc/self/ns/net"}]}'`
	difftest.Must(t, os.WriteFile(filepath.Join(n.bin, "macvlan"), []byte(macvlan), 0o755))
	return n
}

func (n *node) checker() validate.Checker {
	return validate.Checker{Find: func(name string) error {
		_, err := os.Stat(filepath.Join(n.bin, name))
		return err
	}}
}

func (n *node) FindInPath(name string, _ []string) (string, error) {
	if name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("invalid plugin name %q", name)
	}
	return name, nil
}

func (n *node) ExecPlugin(_ context.Context, name string, stdin []byte, environ []string) ([]byte, error) {
	conf, err := config.Parse(stdin)
	if err != nil {
		return nil, err
	}
	if name != validate.Plugin {
		made := &types100.Result{CNIVersion: "1.0.0", Interfaces: []*types100.Interface{{Name: "net7", Sandbox: n.netns}},
			IPs: []*types100.IPConfig{{Address: net.IPNet{IP: net.IPv4(10, 0, 0, 9), Mask: net.CIDRMask(24, 32)}}}}
		result, err := made.GetAsVersion(conf.CNIVersion)
		if err != nil {
			return nil, types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions", err.Error())
		}
		return json.Marshal(result)
	}
	files := func() int {
		list, _ := os.ReadDir(n.state + "/infos")
		return len(list)
	}
	before := files()
	settings := config.DefaultNode()
	settings.DeviceInfoDir, settings.DevicePluginDir, settings.StateDir, settings.CDIDir = n.state+"/infos", n.state+"/pool", n.state+"/state", n.state+"/cdi"
	var stdout, stderr bytes.Buffer
	h := plugin.NewHost(settings, n.finder, "boot", &stdout, slog.New(slog.NewTextHandler(&n.log, nil)))
	environ = append(environ, "CNI_NETNS_OVERRIDE=1")
	getenv := func(key string) string {
		at := slices.IndexFunc(environ, func(pair string) bool { return strings.HasPrefix(pair, key+"=") })
		if at < 0 {
			return ""
		}
		return environ[at][len(key)+1:]
	}
	if exit := plugin.Run(h, getenv, bytes.NewReader(stdin), &stderr); exit != 0 {
		e := new(types.Error)
		return nil, cmp.Or[error](json.Unmarshal(stdout.Bytes(), e), e)
	}
	pathless := conf.InfoFile == "" && !conf.AutoFile
	n.ran, n.pathless = true, n.pathless || pathless
	n.fileless = n.fileless || !pathless && len(conf.DeviceInfo) > len("{}") && files() == before
	return stdout.Bytes(), nil
}

// attach returns the reason why no pod gets a network; "" = it gets it. resource means that Multus has a device for
// the network.
func (n *node) attach(t *testing.T, network string, multus, resource bool) string {
	t.Helper()
	n.adds++
	n.ran, n.pathless, n.fileless = false, false, false
	n.log.Reset()
	var keys map[string]any
	difftest.Must(t, json.Unmarshal([]byte(network), &keys))
	plugins, _ := keys["plugins"].([]any)
	if keys["plugins"] == nil {
		plugins = []any{keys}
	}
	if name, has := keys["name"]; multus && (!has || name == "") { // GetCNIConfigFromSpec of NAD-client
		keys["name"] = "n"
	}
	for _, p := range plugins {
		if conf, is := p.(map[string]any); is && multus && resource {
			conf["deviceID"], conf["pciBusID"] = device, device // addDeviceIDInConfList of Multus
		}
	}
	list, err := libcni.NetworkConfFromBytes(marshal(t, keys))
	if _, has := keys["plugins"]; !has {
		single, wrong := libcni.NetworkPluginConfFromBytes(marshal(t, keys))
		if list, err = nil, wrong; err == nil {
			//lint:ignore SA1019 containerd and CRI-O call it for files .conf
			list, err = libcni.ConfListFromConf(single)
		}
	}
	if err != nil {
		return "libcni: " + err.Error()
	}
	rt := &libcni.RuntimeConf{ContainerID: fmt.Sprintf("%064x", n.adds), NetNS: n.netns, IfName: "net7", CapabilityArgs: map[string]any{},
		Args: [][2]string{{"K8S_POD_NAMESPACE", "a"}, {"K8S_POD_NAME", "b"}, {"K8S_POD_UID", "6a4c-11"}}}
	if !multus || resource {
		rt.CapabilityArgs["CNIDeviceInfoFile"], rt.CapabilityArgs["deviceID"] = fmt.Sprintf("%s/infos/file%d", n.state, n.adds), device
	}
	_, err = libcni.NewCNIConfigWithCacheDir([]string{n.bin}, n.state+"/cache", n).AddNetworkList(t.Context(), list, rt)
	if e, is := errors.AsType[*types.Error](err); is {
		return strings.TrimSuffix(fmt.Sprintf("%d: %s; %s", e.Code, e.Msg, e.Details), "; ")
	} else if err != nil {
		return "libcni: " + err.Error()
	}
	return ""
}

// document returns the file with a network, or its NetworkAttachmentDefinition.
func (n *node) document(t *testing.T, network string, multus, resource bool) string {
	t.Helper()
	if !multus {
		return network
	}
	annotations := map[string]string{}
	if resource {
		annotations["k8s.v1.cni.cncf.io/resourceName"] = "example.com/vf"
	}
	return string(marshal(t, map[string]any{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"name": "n", "annotations": annotations}, "spec": map[string]string{"config": network}}))
}

// networks returns configurations, each with a title. "@" stands for a devinfo that requests the path of its file.
func networks(t *testing.T) []string {
	return strings.Split(strings.TrimSuffix(difftest.Read(t, "testdata/networks.txt"), "\n"), "\n")
}

// validate reports an error exactly if ADD refuses the configuration: in a file on the node, and in a
// NetworkAttachmentDefinition with and without a device.
func validateFindsWhatADDRefuses(t *testing.T, said *messages) {
	n := newNode(t)
	for _, row := range networks(t) {
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
				text := n.document(t, network, form.multus, form.resource)
				report := one(t, n.checker(), text, "")
				var refused []string
				if why := n.attach(t, network, form.multus, form.resource); why != "" {
					refused = []string{why}
				}
				if title := name + ", " + form.name; !form.multus || strings.HasPrefix(name, "alone") || name == "chained" {
					said.add(title, strings.NewReplacer(n.bin, "CNI_PATH", n.state, "STATE"), "ADD", refused, "validate", foundIn(report))
				}
				difftest.Same(t, fmt.Sprintf("ADD refuses: %s\nvalidate finds: %v\n", refused, report.Findings), report.Errors() > 0, len(refused) > 0)
			})
		}
	}
}
