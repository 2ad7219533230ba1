// Package policy_test compares the three programs that give devices to containers: the agent by NRI, the driver for a
// claim, and the plugin by the key cdi of a network. They follow the same node settings, and devinfoctl list says what they
// withhold.
package policy_test

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

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/agent/inject/injecttest"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/store"
	plugin "devinfo-cni.io/plugins/devinfo"
	"devinfo-cni.io/test/difftest"
)

const (
	netns     = "/proc/self/ns/net" // of this process, with CNI_NETNS_OVERRIDE
	container = "c1"
	podUID    = "6e0c2d4f-58a1-4a0e-9d2e-2f7f6f1f0c11"
)

// given are the names of the device nodes and the variables that a container gets, except the path of the device-info
// file.
type given struct{ Nodes, Env []string }

func (g given) sorted() given {
	g.Env = slices.DeleteFunc(g.Env, func(v string) bool { return strings.HasPrefix(v, "DEVINFO_NET1=") })
	slices.Sort(g.Env)
	slices.Sort(g.Nodes)
	g.Nodes = slices.Compact(g.Nodes)
	return g
}

// ofOne leaves out the variable of all interfaces of a pod, which the CDI device of one network cannot know.
func (g given) ofOne() given {
	g.Env = slices.DeleteFunc(slices.Clone(g.Env), func(v string) bool { return strings.HasPrefix(v, cdispec.RDMAVariable+"=") })
	return g.sorted()
}

// verbs are the device nodes that a claim brings without a setting.
func (g given) verbs() (list []string) {
	for _, n := range g.Nodes {
		if strings.HasPrefix(n, "/dev/infiniband/uverbs") || n == "/dev/infiniband/rdma_cm" {
			list = append(list, n)
		}
	}
	return list
}

// inPod is a captured host. The pod has one of its interfaces, or none.
type inPod struct {
	*linkhost.Kernel
	own *link.Interface // nil = none
}

func (p inPod) Interface(in, name string) (link.Interface, error) {
	switch {
	case in == "":
		return p.Kernel.Interface(in, name)
	case p.own == nil:
		return link.Interface{}, link.ErrNoInterface
	}
	own := *p.own
	own.Name = name
	return own, nil
}

// place is a device of a host, which the pod has with or without its interface.
type place struct {
	host   string
	device inventory.Device
	finder *discovery.Finder
	moved  bool
}

func (p place) String() string {
	return fmt.Sprintf("%s, %s, interface in the pod %v", p.host, p.device.Name, p.moved)
}

// places returns the devices of a host, once for each place of the interface.
func places(t *testing.T, name string, text []byte) (list []place) {
	read := func(text []byte) (*linkhost.Kernel, inventory.Host) {
		file, err := capturefile.Parse(text)
		difftest.Must(t, err)
		links, err := linkhost.New(file)
		difftest.Must(t, err)
		host, err := inventory.Captured(file)
		difftest.Must(t, err)
		return links, host
	}
	links, host := read(text)
	all, _, err := inventory.Read(host)
	difftest.Must(t, err)
	for _, d := range all {
		if d.ID() != "" || d.VDPA != "" {
			list = append(list, place{name, d, &discovery.Finder{Sys: host.Sys, Interfaces: inPod{links, nil}, Eswitches: links}, false})
		}
		if d.IfName == "" || d.LeaseID() == "" {
			continue
		}
		own, err := links.Interface("", d.IfName)
		difftest.Must(t, err)
		left, host := read(capturetest.Without(text, d.IfName))
		list = append(list, place{name, d, &discovery.Finder{Sys: host.Sys, Interfaces: inPod{left, &own}, Eswitches: left}, true})
	}
	return list
}

// node is a node with settings, on which the readers run.
type node struct {
	place
	settings  config.Node
	dir, root string // of its records, and of the host with the device nodes
	log       *slog.Logger
}

// byPlugin runs ADD, and returns what its CDI spec gives. ok is false if it writes none, because a device has no driver.
func (n node) byPlugin(t *testing.T) (g given, ok bool) {
	conf := map[string]any{"cniVersion": "1.1.0", "name": "net-a", "type": "devinfo", "cdi": true, "subfunctionParent": n.device.Kind == hostdev.SF,
		"runtimeConfig": map[string]string{"CNIDeviceInfoFile": n.settings.DeviceInfoDir + "/net-a-c1_net1"}}
	if n.moved {
		conf["prevResult"] = map[string]any{"cniVersion": "1.1.0", "interfaces": []any{map[string]string{"name": "net1", "sandbox": netns}}}
	} else {
		conf["deviceID"] = n.id()
	}
	stdin, _ := json.Marshal(conf)
	environment := map[string]string{"CNI_COMMAND": "ADD", "CNI_CONTAINERID": container, "CNI_NETNS": netns, "CNI_IFNAME": "net1", "CNI_PATH": "/none",
		"CNI_NETNS_OVERRIDE": "1", "CNI_ARGS": "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_UID=" + podUID}
	var stdout bytes.Buffer
	h := plugin.NewHost(n.settings, *n.finder, "boot", &stdout, n.log)
	h.Nodes = grant.NodesBelow(n.root)
	if exit := plugin.Run(h, func(key string) string { return environment[key] }, bytes.NewReader(stdin), os.Stderr); exit != 0 {
		t.Errorf("%v: ADD: %s", n.place, stdout.Bytes())
		return g, false
	}
	files, _ := filepath.Glob(n.settings.CDIDir + "/*")
	if len(files) != 1 {
		return g, false
	}
	var spec specs.Spec
	difftest.Must(t, json.Unmarshal([]byte(difftest.Read(t, files[0])), &spec))
	return bySpec(&spec), true
}

func bySpec(spec *specs.Spec) (g given) {
	edits := spec.Devices[0].ContainerEdits
	for _, d := range edits.DeviceNodes {
		g.Nodes = append(g.Nodes, d.Path)
	}
	return given{g.Nodes, edits.Env}.sorted()
}

func (p place) id() string {
	if p.device.VDPA != "" {
		return p.device.VDPA
	}
	return p.device.ID()
}

// byAgent returns what the agent adds to a container of the pod after ADD.
func (n node) byAgent(t *testing.T) (g given) {
	p := inject.New(inject.Config{
		StageDir: n.dir + "/stage", HostRoot: n.root, BootID: "boot", MissingInfo: inject.Allow, Finder: n.finder, Metrics: injecttest.Uncounted{}, Log: n.log,
		Node: func() (config.Node, error) { return n.settings, nil },
	})
	sandbox := &api.PodSandbox{Id: container, Uid: podUID, Name: "pod", Namespace: "ns", Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: netns}}}}
	got, _, err := p.CreateContainer(t.Context(), sandbox, &api.Container{Id: "app", PodSandboxId: container, Linux: &api.LinuxContainer{}})
	difftest.Must(t, err)
	for _, d := range got.GetLinux().GetDevices() {
		g.Nodes = append(g.Nodes, d.Path)
	}
	for _, e := range got.GetEnv() {
		g.Env = append(g.Env, e.Key+"="+e.Value)
	}
	return g.sorted()
}

// byDriver returns what the CDI spec of a claim for the device gives, and the record of the claim.
func (n node) byDriver(t *testing.T) (given, *state.Claim) {
	own := devices.New(devices.Options{
		Driver: "cni.dra.networking.x-k8s.io", StateDir: n.dir, BootID: "boot", Finder: n.finder, Log: n.log,
		DeviceNodes: grant.NodesBelow(n.root), Settings: func() (config.Node, error) { return n.settings, nil },
	}, nil)
	gate := network.Gate{Kind: "example.com/test", Specs: store.Open(n.dir + "/gates"), Hook: "/hook", Node: own, Log: n.log, Unexposed: func(string, string) error { return nil }}
	published := resourceapi.Device{Name: n.device.Name, Attributes: n.device.Attributes}
	record := &state.Claim{UID: "u1", Namespace: "ns", Name: "c"}
	record.Attachments = []state.Attachment{{Request: "r", Device: n.device.Name, IfName: "net1", List: json.RawMessage("{}"), Phase: state.Added,
		NodeDevice: &state.NodeDevice{Ref: n.device.Ref, Published: config.Encode(published)}}}
	at := &record.Attachments[0]
	at.Sandbox, at.Netns, at.BootID, at.Network = container, netns, "boot", "net-b"
	if n.device.Kind == hostdev.SF || n.id() == "" { // described only if the network has the plugin devinfo
		at.Info = []byte(difftest.Read(t, n.settings.DeviceInfoDir+"/net-a-c1_net1"))
	} else if info := own.Describe(at); info != nil {
		at.Info = info.Encode()
	}
	spec, withheld, err := gate.Spec(record, at, false)
	difftest.Must(t, err)
	for _, r := range withheld {
		n.log.Warn("device withheld from containers", "device", r.Device)
	}
	network.SetRDMA(spec, network.RDMAVariable(record.Attachments))
	return bySpec(spec), record
}

// devDir returns the root of a host that has every device node.
func devDir(t *testing.T) string {
	root := t.TempDir()
	names := []string{"infiniband/rdma_cm", "vfio/vfio", "iommu", "vhost-net", "net/tun"}
	for _, series := range []string{"infiniband/uverbs", "infiniband/umad", "infiniband/issm", "vfio/", "vfio/devices/vfio", "vhost-vdpa-"} {
		for n := range 300 {
			names = append(names, fmt.Sprint(series, n))
		}
	}
	for _, name := range names { // links, because ordinary users cannot create device nodes
		at := filepath.Join(root, "dev", name)
		difftest.Must(t, os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink("/dev/null", at))
	}
	return root
}

func TestReadersOfPolicyAgree(t *testing.T) {
	hosts := map[string][]byte{"two ports": capturetest.Ports("mlx4_core", 2)}
	for _, name := range capturetest.Names(t) {
		hosts[name] = capturetest.Text(t, name)
	}
	root := devDir(t)
	seen := map[int]int{} // by the number of device nodes that the plugin gives; -1 = it writes no spec
	for name, text := range hosts {
		for _, p := range places(t, name, text) {
			p.compare(t, root, seen)
		}
	}
	for n := -1; n <= 4; n++ {
		if seen[n] == 0 {
			t.Errorf("no device has %d nodes: %v", n, seen)
		}
	}
}

// compare runs the readers for each of some settings.
func (p place) compare(t *testing.T, root string, seen map[int]int) {
	own, pf := []string{p.id()}, []string{inventory.Text(p.device.Attributes, inventory.AttrPFPCIBusID)}
	if p.device.Kind == hostdev.SF { // the settings know it by its PF only
		own = pf
	}
	var named given // by the setting that names the device
	for n, allowed := range [][]string{own, nil, {"*"}, pf} {
		dir := t.TempDir()
		settings := config.DefaultNode()
		settings.DeviceInfoDir, settings.StateDir, settings.CDIDir = dir+"/infos", dir+"/state", dir+"/cdi"
		settings.AllowedDevices, settings.InjectDeviceNodes = allowed, true
		refused := &refusals{}
		on := node{p, settings, dir, root, slog.New(slog.NewTextHandler(refused, nil))}
		plugin, ok := on.byPlugin(t)
		refused.taken()
		agent := on.byAgent(t)
		byAgent := refused.taken()
		driver, record := on.byDriver(t)
		network, claim := on.byList(t, record)
		difftest.Same(t, fmt.Sprintf("%v, allowedDevices %q: withheld from the network", p, allowed), network, byAgent)
		difftest.Same(t, fmt.Sprintf("%v, allowedDevices %q: withheld from the claim", p, allowed), claim, refused.taken())
		if !ok {
			if seen[-1]++; len(agent.Nodes)+len(driver.Nodes) > 0 {
				t.Errorf("%v: without a spec of the plugin: %+v, %+v", p, agent, driver)
			}
			continue
		}
		if n == 0 {
			named = plugin
		}
		difftest.Same(t, fmt.Sprintf("%v, allowedDevices %q: agent and plugin", p, allowed), agent.ofOne(), plugin)
		want := given{slices.Concat(plugin.Nodes, named.verbs()), agent.Env}.sorted()
		difftest.Same(t, fmt.Sprintf("%v, allowedDevices %q: driver and plugin", p, allowed), driver, want)
		seen[len(plugin.Nodes)]++
		on.settings.InjectDeviceNodes = false
		difftest.Same(t, fmt.Sprintf("%v: nodes without injectDeviceNodes", p), on.byAgent(t).Nodes, []string(nil))
	}
}
