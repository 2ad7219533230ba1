package main

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
)

// root has all files of the program: it survives a reboot, so that the record of a run does. DEVINFO_TRY_DIR replaces it.
const root = "/var/lib/devinfo-try"

// node is the machine, with the program's own directories.
type node struct {
	dir     string
	sys     *sysfs.FS
	links   settings.Kernel
	custody *restore.Devices
	bootID  string
	config  config.Node // settings of the node's own devinfo
	kubelet string      // socket of its PodResources API
	run     *record     // of this run
}

func openNode(kubelet string) (*node, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("run it as root: it reads who uses a function, and moves functions between network namespaces")
	}
	for _, ns := range []string{"net", "pid"} {
		own, err1 := os.Readlink("/proc/self/ns/" + ns)
		host, err2 := os.Readlink("/proc/1/ns/" + ns)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		if own != host {
			return nil, fmt.Errorf("run it in the host's %s namespace (in a pod: hostNetwork and hostPID)", ns)
		}
	}
	n := &node{dir: root, kubelet: kubelet}
	if dir := os.Getenv("DEVINFO_TRY_DIR"); dir != "" {
		n.dir = dir
	}
	var err error
	if n.sys, err = sysfs.Open("/sys"); err != nil {
		return nil, err
	}
	if n.bootID, err = journal.BootID(); err != nil {
		return nil, err
	}
	if n.config, err = config.LoadNode(config.NodeFile); err != nil {
		return nil, err
	}
	n.links = settings.Kernel{Kernel: link.NewKernel(n.sys.Files()), Proc: "/proc"}
	n.custody = restore.New(n.sys, sysfs.Writer("/sys"), n.links)
	return n, nil
}

// lock makes sure that one program runs, and none of its plugins.
func (n *node) lock() (unlock func(), err error) {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(n.dir+"/lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("another devinfo-try runs (%s/lock): wait for its end", n.dir)
	}
	return func() { file.Close() }, nil
}

// plugins is the directory of the CNI plugins. DEVINFO_TRY_PLUGINS replaces them.
func (n *node) plugins() string {
	if dir := os.Getenv("DEVINFO_TRY_PLUGINS"); dir != "" {
		return dir
	}
	return n.dir + "/bin"
}

// unpack writes the plugins that are in the executable, and the node settings with directories of this program.
func (n *node) unpack() error {
	own := n.config
	own.DeviceInfoDir, own.DevicePluginDir, own.StateDir, own.CDIDir = n.dir+"/devinfo", n.dir+"/dp", n.dir+"/state", n.dir+"/cdi"
	own.LogFile, own.InjectDeviceNodes = "", false
	data, err := json.Marshal(own)
	if err != nil {
		return err
	}
	for _, dir := range []string{own.DeviceInfoDir, own.DevicePluginDir, own.StateDir, own.CDIDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(n.settings(), data, 0o600); err != nil || n.plugins() != n.dir+"/bin" {
		return err
	}
	archive, err := zip.OpenReader("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("the plugins at the end of the executable: %w: build it with make try", err)
	}
	defer archive.Close()
	return errors.Join(os.RemoveAll(n.plugins()), os.CopyFS(n.plugins(), archive))
}

func (n *node) settings() string { return n.dir + "/node.json" }

// A target is a network function of the node.
type target struct {
	*hostdev.Device
	name    string // of package inventory
	why     string // why it cannot be used; "" = it can
	given   string // who has it, which is never a run of this program that was killed; "" = nobody
	taken   bool   // somebody has begun to use it, so this program leaves it
	broken  bool   // it is not as before
	hangs   bool   // a check of it has not ended
	product string // "82576 (igb)"
	vdpa    []string
}

func (t *target) describe() string {
	text := t.product
	if t.Parent != nil {
		text += ", VF of " + t.Parent.PCI
	} else {
		text += ", " + strings.ToUpper(string(t.Kind))
	}
	if t.Driver != "" {
		text += ", on " + t.Driver
	}
	if t.IfName != "" {
		text += " as " + t.IfName
	}
	return text
}

// look returns the network functions with these addresses, or all of the node, with why they cannot be used.
func (n *node) look(ctx context.Context, addresses ...string) (list []*target, err error) {
	host, err := inventory.Live(n.sys, &settings.Memory{Proc: "/proc"})
	if err != nil {
		return nil, err
	}
	devices, _, err := hostdev.Read(host.Host)
	if err != nil {
		return nil, err
	}
	u, err := n.uses(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if d.PCI == "" || d.Function == nil || len(addresses) > 0 && !slices.Contains(addresses, d.PCI) {
			continue
		}
		t := &target{Device: d, name: "pci-" + strings.NewReplacer(":", "-", ".", "-").Replace(d.PCI)}
		if t.product, err = product(n.sys, d); err != nil {
			return nil, err
		}
		on, err := n.sys.VDPAOn(*d.Function)
		if err != nil {
			return nil, err
		}
		for _, v := range on {
			t.vdpa = append(t.vdpa, v.Name)
		}
		u.judge(t)
		list = append(list, t)
	}
	return list, nil
}

// product names the card of a function. Several cards have the same ID for VFs, so the PF tells.
func product(sys *sysfs.FS, d *hostdev.Device) (string, error) {
	if d.Parent != nil {
		d = d.Parent
	}
	vendor, device, err := sys.IDs(d.Function.Address)
	if f, product := nic.Of(vendor, device, d.Driver); f != nil && product != "" {
		return product + " (" + f.Driver + ")", err
	}
	return strings.TrimPrefix(vendor, "0x") + ":" + strings.TrimPrefix(device, "0x"), err
}

// find returns a network function; nil = the node has none at this address.
func (n *node) find(ctx context.Context, address string) (*target, error) {
	list, err := n.look(ctx, address)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

func (n *node) list(ctx context.Context, out io.Writer) error {
	all, err := n.look(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FUNCTION\tIS\tCAN BE TRIED")
	for _, t := range all {
		can := "yes"
		switch {
		case t.why != "":
			can = "no: " + t.why
		case t.Parent == nil:
			can = "if you name it twice"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", t.PCI, t.describe(), can)
	}
	return w.Flush()
}
