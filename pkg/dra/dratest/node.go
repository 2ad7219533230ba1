package dratest

import (
	"cmp"
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// Rules are the rules of a node, unless a test gives others. Two devices are exclusive and the PF is shared.
const Rules = `devices:
- select: device.attributes["devinfo-cni.io"].kind == "vf" && device.attributes["devinfo-cni.io"].vfIndex == 3
  sharing: exclusive
  resourceName: example.com/vf
- select: device.attributes["devinfo-cni.io"].kind in ["vf", "sf"]
  sharing: exclusive
  attributes: {physicalNetwork: blue}
- ifNames: [p0]
  sharing: shared
  attachments: 7
`

// InfinibandRules offer the functions of the captured host mlx5-infiniband.
const InfinibandRules = `devices:
- select: device.attributes["devinfo-cni.io"].linkType == "infiniband"
  sharing: exclusive
  resourceName: example.com/ib
`

// Devices of the captured host mlx5-switchdev. VF3 has a resourceName and is bound to vfio-pci.
const (
	VF0, VF2, VF3 = "pci-0000-03-00-2", "pci-0000-03-00-4", "pci-0000-03-00-5"
	SF4, SF7      = "auxx-mlx5-5fcore-2esf-2e4", "auxx-mlx5-5fcore-2esf-2e7"
	PF            = "pci-0000-03-00-0"
)

// Node is a captured host whose devices an agent offers. Tests change it.
type Node struct {
	sync.Mutex  // of the fields, while an agent runs
	t           testing.TB
	Text        []byte
	Rules       string // "" = the constant
	Others      map[string]string
	OthersError error
	events      chan struct{}
}

// NewNode returns a captured host.
func NewNode(t testing.TB, name string) *Node {
	t.Helper()
	return &Node{t: t, Text: capturetest.Text(t, name), events: make(chan struct{}, 1)}
}

// Inventory returns the node's devices, as the agent reads them now and later.
func (n *Node) Inventory() *devices.Inventory {
	of := InventoryOf(inventory.Host{}, cmp.Or(n.Rules, Rules))
	of.Host = n.Host
	of.Events = func(context.Context) (<-chan struct{}, error) { return n.events, nil }
	of.Others = func(context.Context) (map[string]string, error) {
		n.Lock()
		defer n.Unlock()
		return n.Others, n.OthersError
	}
	return of
}

// InventoryOf returns an inventory of a host that does not change.
func InventoryOf(host inventory.Host, rules string) *devices.Inventory {
	parsed, err := inventory.ParseRules([]byte(rules))
	Check(err)
	return &devices.Inventory{
		Rules: parsed, Host: func() (inventory.Host, error) { return host, nil }, Settle: time.Millisecond, Poll: time.Hour,
		Events: func(context.Context) (<-chan struct{}, error) { return nil, nil },
		Others: func(context.Context) (map[string]string, error) { return nil, nil }, Waits: func() time.Duration { return 0 },
	}
}

// Lineage is devices.Options.Lineage.
func (n *Node) Lineage(device string) ([]sysfs.Object, error) {
	h, err := n.Host()
	if err != nil {
		return nil, err
	}
	return h.Sys.Lineage(device)
}

// Host reads the node.
func (n *Node) Host() (inventory.Host, error) {
	n.Lock()
	defer n.Unlock()
	file, err := capturefile.Parse(n.Text)
	if err != nil {
		return inventory.Host{}, err
	}
	return inventory.Captured(file)
}

// Finder is devices.Options.Finder.
func (n *Node) Finder() *discovery.Finder {
	file, err := capturefile.Parse(n.Text)
	difftest.Must(n.t, err)
	links, err := linkhost.New(file)
	difftest.Must(n.t, err)
	return &discovery.Finder{Sys: sysfs.New(file.Sys()), Interfaces: links, Eswitches: links}
}

// Change changes the node and sends an event.
func (n *Node) Change(f func()) {
	n.Lock()
	f()
	n.Unlock()
	n.events <- struct{}{}
}

// Remove removes functions or interfaces from the node: see capturetest.Without.
func (n *Node) Remove(words ...string) { n.Text = capturetest.Without(n.Text, words...) }

// Offer makes the agent offer the devices of a captured host. Rules "" are the constant Rules.
func (r *Rig) Offer(host, rules string) *Node {
	r.T.Helper()
	n := NewNode(r.T, host)
	n.Rules = rules
	r.Options.Devices.Inventory, r.Options.Devices.Finder = n.Inventory(), n.Finder()
	return n
}

// Survey reads the node and returns the devices in its slices.
func Survey(agent *dra.Agent) inventory.Published {
	list, _ := agent.Node.Slices(context.Background())
	all := inventory.Published{}
	for _, s := range list {
		for _, d := range s.Devices {
			all[d.Name] = d
		}
	}
	return all
}

// UseJournal is Offer for an agent that grants device nodes and leases devices. It returns the journal.
func (r *Rig) UseJournal(host, rules string) *journal.Journal {
	r.Options.Devices.Journal, r.Options.Devices.Lineage = JournalIn(r.Dir, "boot1"), r.Offer(host, rules).Lineage
	r.Options.Devices.Settings = func() (config.Node, error) { return config.Node{AllowedDevices: []string{"*"}}, nil }
	r.Options.Devices.DeviceNodes = func(path string) (cdispec.DeviceNode, error) { return cdispec.DeviceNode{Path: path, Type: "c"}, nil }
	return r.Options.Devices.Journal
}

// JournalIn returns the journal below dir, for which a file is a network namespace.
func JournalIn(dir, bootID string) *journal.Journal {
	j := journal.Open(filepath.Join(dir, "journal"), bootID)
	j.NetnsGone = func(netns string) (bool, error) { return fileIsNetns(netns) != nil, nil }
	return j
}

// MultusEntry returns the journal entry of an ADD by Multus.
func MultusEntry(sb *api.PodSandbox, leases ...journal.DeviceLease) *journal.Entry {
	return &journal.Entry{
		Key: journal.Key{Network: "sriov-net", ContainerID: sb.Id, IfName: "net7"}, Netns: NetnsOf(sb), Complete: true, Time: time.Now(),
		Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=" + sb.Name, Pod: sb.Uid, Leases: leases,
	}
}

// ExclusiveLease returns an exclusive lease of a device.
func ExclusiveLease(id string) journal.DeviceLease {
	return journal.DeviceLease{ID: id, Mode: journal.Exclusive}
}

// RecordMultus writes an entry to the journal.
func (r *Rig) RecordMultus(e *journal.Entry) {
	r.T.Helper()
	difftest.Must(r.T, r.Options.Devices.Journal.Put(e, nil))
	e.Unlock()
}
