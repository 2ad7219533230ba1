package grant_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

const card = "0000:05:00.0"

// portsHost is a function with ports, some of them in network namespaces that /sys does not show.
type portsHost struct {
	driver    string
	ports     int
	pod       int    // the pod's port, which is always hidden; -1 = the pod has no port, and deviceID names the function
	hidden    []bool // by port
	numbers   string // "dev_port", "phys_port_name", or "": how the driver numbers its ports
	reps      int    // representors
	rdma      string // "": no RDMA device; "visible"; else in another namespace, with "umad" or only "uverbs"
	sfs       int    // sub-functions of ice, which look like ports of the function
	allowed   bool
	broken    string // this directory cannot be read
	namesSeed uint64
}

// several is what only the oracle knows: another interface of the function exists.
func (h portsHost) several() bool { return h.ports+h.sfs > 1 }

func (h portsHost) sys() fs.FS {
	const dir = "devices/pci0000:00/" + card
	tree := fstest.MapFS{}
	file := func(name, text string) { tree[path.Join(dir, name)] = &fstest.MapFile{Data: []byte(text + "\n")} }
	link := func(name, target string) { tree[name] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(target)} }
	link("bus/pci/devices/"+card, "../../../"+dir)
	link(dir+"/driver", "../../../bus/pci/drivers/"+h.driver)
	names := rand.New(rand.NewPCG(h.namesSeed, 0)).Perm(100) // the order of a directory tells nothing
	netdev := func(index, port int, portName string) {
		at := fmt.Sprintf("net/eth%d/", names[index])
		file(at+"ifindex", fmt.Sprint(index+4))
		if h.numbers == "dev_port" {
			file(at+"dev_port", fmt.Sprint(port))
		}
		if portName != "" {
			file(at+"phys_port_name", portName)
		}
	}
	tree[dir+"/net"] = &fstest.MapFile{Mode: fs.ModeDir}
	for p := range h.ports {
		if !h.hidden[p] {
			netdev(p, p, h.portName(p))
		}
		if h.rdma == "visible" {
			file(fmt.Sprintf("infiniband/rdma0/ports/%d/state", p+1), "4: ACTIVE")
		}
		if h.rdma == "umad" || h.rdma == "visible" {
			file(fmt.Sprintf("infiniband_mad/umad%d/dev", p), "231:0")
		}
	}
	if h.rdma != "" {
		file("infiniband_verbs/uverbs0/dev", "231:192")
	}
	for r := range h.reps {
		netdev(10+r, 0, fmt.Sprintf("pf0vf%d", r))
	}
	for s := range h.sfs {
		link(fmt.Sprintf("bus/auxiliary/devices/ice.sf.%d", s+1), fmt.Sprintf("../../../%s/ice.sf.%d", dir, s+1))
		file(fmt.Sprintf("ice.sf.%d/uevent", s+1), "")
	}
	return capturetest.Tree{FS: tree, BeforeCall: func(name string) error {
		if h.broken != "" && strings.HasSuffix(name, h.broken) {
			return syscall.EACCES
		}
		return nil
	}}
}

func (h portsHost) portName(port int) string {
	if h.numbers == "phys_port_name" {
		return fmt.Sprintf("p%d", port)
	}
	return ""
}

func (h portsHost) Interface(_, name string) (link.Interface, error) {
	if h.pod < 0 {
		return link.Interface{}, link.ErrNoInterface
	}
	return link.Interface{Name: name, Index: 3, Bus: "pci", Parent: card, PortName: h.portName(h.pod)}, nil
}

func (portsHost) VDPAMAC(string) (net.HardwareAddr, bool, error) { return nil, false, nil }
func (portsHost) WithMAC(net.HardwareAddr) ([]string, error)     { return nil, nil }

func randomPorts(r *rand.Rand) portsHost {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	h := portsHost{
		driver: pick("mlx4_core", "nfp", "cxgb4", "mana", "acme", "mlx5_core", "i40e", "ice"), ports: 1 + r.IntN(4), reps: r.IntN(2) * 12, namesSeed: r.Uint64(),
		numbers: pick("dev_port", "phys_port_name", ""), rdma: pick("", "visible", "umad", "uverbs"), allowed: r.IntN(3) == 0,
		broken: pick("", "", "", "/net", "/infiniband", "/ports", "/infiniband_mad", "/infiniband_verbs", "bus/auxiliary/devices"),
	}
	switch h.driver {
	case "ice":
		h.ports, h.sfs = 1, r.IntN(3)
	case "mlx5_core", "i40e":
		h.ports = 1
	}
	h.hidden, h.pod = make([]bool, h.ports), r.IntN(h.ports+1)-1
	for p := range h.hidden {
		h.hidden[p] = p == h.pod || r.IntN(2) == 0
	}
	return h
}

// The oracle sees the ports in all network namespaces. What devinfo cannot see must not make a pod the only user of a
// function.
func TestHiddenPortIsNeverTakenForNone(t *testing.T) {
	r := rand.New(rand.NewPCG(46, 2))
	exclusive, granted, refused := map[string]int{}, 0, 0
	for range 5000 {
		h := randomPorts(r)
		sys := sysfs.New(h.sys())
		finder := &discovery.Finder{Sys: sys, Interfaces: h}
		target := discovery.Target{Netns: "/run/netns/pod", IfName: "net1", FollowLower: true}
		if h.pod < 0 {
			target.DeviceIDs = []config.NamedID{{Key: "deviceID", ID: card}}
		}
		found, err := finder.Find(target)
		if err != nil && errors.Is(err, syscall.EACCES) && h.broken != "" {
			continue // ADD fails
		}
		difftest.Must(t, err)
		g := grant.Granter{Sys: sys, Nodes: nodes("infiniband/uverbs0", "infiniband/rdma_cm")}
		if h.allowed {
			g.Settings.AllowedDevices = []string{"*"}
		}
		got, err := g.For(found, found.Info)
		if err != nil && errors.Is(err, syscall.EACCES) && h.broken != "" {
			continue
		}
		difftest.Must(t, err)
		sole := found.IsInterface && !found.Shared && !found.MaybeShared
		if h.several() && (sole || len(got.Nodes) > 0) {
			t.Fatalf("%+v has several ports, and the pod gets it exclusively (%v) with %v", h, sole, got.Nodes)
		}
		if h.rdma != "" && len(got.Nodes) == 0 && len(got.Refusals) == 0 && !strings.HasPrefix(h.broken, "/infiniband_verbs") {
			t.Fatalf("%+v: no device nodes, and no reason", h)
		}
		if sole {
			exclusive[h.driver]++
		}
		granted += len(got.Nodes)
		refused += len(got.Refusals)
	}
	drivers := []string{"mlx4_core", "nfp", "cxgb4", "mana", "acme", "mlx5_core", "i40e", "ice"}
	if slices.ContainsFunc(drivers, func(d string) bool { return exclusive[d] == 0 }) || granted == 0 || refused == 0 {
		t.Errorf("some case never occurs: exclusive %v, %d nodes granted, %d refusals", exclusive, granted, refused)
	}
}
