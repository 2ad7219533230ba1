package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/pkg/host/process"
	"devinfo-cni.io/pkg/host/stack"
	"devinfo-cni.io/pkg/host/sysfs"
)

// uses is what the node's programs use. What cannot be read counts as used.
type uses struct {
	node   *node
	host   inventory.Host
	leased []string          // journal IDs
	pods   map[string]string // by PCI address: why
	stacks map[int][]stack.Upper
	root   string // of the files of libvirt, NetworkManager and systemd; "" = /
}

func (n *node) uses(ctx context.Context, host inventory.Host) (u *uses, err error) {
	u = &uses{node: n, host: host, pods: map[string]string{}}
	if u.leased, err = journal.Open(n.config.StateDir, n.bootID).Leased(journal.OfDevice); err != nil {
		return nil, fmt.Errorf("leases of devinfo: %w", err)
	}
	locked, err := journal.LockedBySRIOV(os.DirFS(journal.SRIOVLocks), link.NetnsGone)
	if err != nil {
		return nil, fmt.Errorf("locks of sriov-cni: %w", err)
	}
	maps.Copy(u.pods, locked)
	if u.stacks, _, err = stack.Find("/proc"); err != nil {
		return nil, fmt.Errorf("interfaces on other interfaces: %w", err)
	}
	if _, err := os.Stat(n.kubelet); errors.Is(err, fs.ErrNotExist) {
		return u, noKubelet("/proc", n.kubelet)
	}
	answer, err := podresources.Ask(ctx, n.kubelet)
	if err != nil {
		return nil, fmt.Errorf("cannot tell which functions pods have, so none is used: %w", err)
	}
	maps.Copy(u.pods, had(answer))
	return u, nil
}

// had returns which functions pods have, and why.
func had(answer podresources.Answer) map[string]string {
	why := map[string]string{}
	for _, g := range answer.Given {
		why[g.Device] = fmt.Sprintf("pod %s has it (%s)", g.Pod, g.Resource)
	}
	for _, c := range answer.Claimed {
		for _, address := range c.PCI {
			why[address] = fmt.Sprintf("pod %s has it by a claim (%s)", c.Pod, c.Driver)
		}
	}
	return why
}

// noKubelet returns an error if a kubelet runs, whose socket is then elsewhere. MicroK8s calls it kubelite, and in K3s it is a
// part of k3s-server or k3s-agent.
func noKubelet(proc, socket string) error {
	paths, err := filepath.Glob(proc + "/[0-9]*/comm")
	for _, path := range paths {
		name, _ := os.ReadFile(path) // "" = the process has ended
		if strings.HasPrefix(string(name), "kubel") || strings.HasPrefix(string(name), "k3s-") {
			return fmt.Errorf("cannot tell which functions pods have, so none is used: a kubelet runs, but there is no %s: name its socket with --pod-resources", socket)
		}
	}
	return err
}

// judge sets why a function cannot be used, and who has it.
func (u *uses) judge(t *target) {
	t.given = first(t, u.held, u.open)
	if t.why = first(t, u.busy, u.onTop, u.virtualMachine, u.managed); t.why == "" {
		t.why = t.given
	}
}

// first returns the first reason, or "".
func first(t *target, tests ...func(*target) (string, error)) string {
	for _, test := range tests {
		why, err := test(t)
		if err != nil {
			return "cannot tell whether it is in use: " + err.Error()
		}
		if why != "" {
			return why
		}
	}
	return ""
}

func (u *uses) held(t *target) (string, error) {
	if slices.Contains(u.leased, sysfs.ID("pci", t.PCI)) || slices.ContainsFunc(t.vdpa, func(name string) bool { return slices.Contains(u.leased, sysfs.ID("vdpa", name)) }) {
		return "devinfo has a lease of it: see devinfoctl list " + t.PCI, nil
	}
	return u.pods[t.PCI], nil
}

// busy is what the inventory knows: VFs, addresses, routes, ports of bonds and bridges, an interface that is elsewhere.
func (u *uses) busy(t *target) (string, error) {
	if t.VFs > 0 {
		return fmt.Sprintf("it has %d VFs, which would lose their PF", t.VFs), nil
	}
	if t.Driver == "" {
		return "it has no driver", nil
	}
	if len(t.vdpa) == 0 {
		return inventory.Busy(u.host, t.name)
	}
	for _, name := range t.vdpa { // only the vDPA devices are tried, and the function stays
		if why, err := inventory.Busy(u.host, "vdpa-"+name); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

func (u *uses) onTop(t *target) (string, error) {
	if on := u.stacks[u.index(t)]; len(on) > 0 {
		return fmt.Sprintf("%s is on %s", on[0], t.IfName), nil
	}
	return "", nil
}

// index returns that of a function's interface; 0 = it has none.
func (u *uses) index(t *target) int {
	n := slices.IndexFunc(u.host.Links, func(l listing.Interface) bool { return l.Name == t.IfName })
	if n < 0 {
		return 0
	}
	return u.host.Links[n].Index
}

// open looks for processes that have a device node of the function open.
func (u *uses) open(t *target) (string, error) {
	sys := u.node.sys
	numbers, err := sys.NodeNumbers("pci", t.PCI)
	for _, class := range []string{"infiniband_mad/*", "uio/*", "vdpa*/vhost-vdpa-*", "*/vhost-vdpa-*"} {
		paths, _ := fs.Glob(sys.Files(), "bus/pci/devices/"+t.PCI+"/"+class+"/dev")
		for _, path := range paths {
			text, readErr := fs.ReadFile(sys.Files(), path)
			numbers, err = append(numbers, strings.TrimSpace(string(text))), cmp.Or(err, readErr)
		}
	}
	if err != nil {
		return "", err
	}
	holders, err := process.Opened("/proc", numbers)
	if err != nil || len(holders) == 0 {
		return "", err
	}
	return fmt.Sprintf("%s has its device node open", holders[0]), nil
}

// virtualMachine looks for the function, its interface, and its PF as a pool, in the definitions of libvirt's machines and
// networks, running or not.
func (u *uses) virtualMachine(t *target) (string, error) {
	a := t.Function.Address
	address := regexp.MustCompile(fmt.Sprintf(`bus=['"]0x0*%x['"]\s+slot=['"]0x0*%x['"]\s+function=['"]0x0*%x['"]`, a.Bus, a.Device, a.Function))
	names := []string{t.IfName}
	if t.Parent != nil {
		names = append(names, t.Parent.IfName)
	}
	for _, dir := range []string{"/etc/libvirt/qemu", "/etc/libvirt/qemu/networks", "/run/libvirt/qemu", "/run/libvirt/network"} {
		dir = u.root + dir
		files, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		for _, f := range files {
			if filepath.Ext(f.Name()) != ".xml" {
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				return "", err
			}
			named := slices.ContainsFunc(names, func(name string) bool {
				return name != "" && regexp.MustCompile(`(dev|name)=['"]`+regexp.QuoteMeta(name)+`['"]`).Match(data)
			})
			if named || address.Match(data) {
				return "libvirt names it: " + filepath.Join(dir, f.Name()), nil
			}
		}
	}
	return "", nil
}

// managed looks for a connection of NetworkManager, and for a file of systemd-networkd, that configures the interface.
func (u *uses) managed(t *target) (string, error) {
	for _, m := range []struct{ who, file, key string }{
		{"NetworkManager", "/run/NetworkManager/devices/", "connection-uuid="},
		{"systemd-networkd", "/run/systemd/netif/links/", "NETWORK_FILE="},
	} {
		data, err := os.ReadFile(fmt.Sprint(u.root, m.file, u.index(t)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if slices.ContainsFunc(strings.Split(string(data), "\n"), func(line string) bool { return strings.HasPrefix(line, m.key) && line != m.key }) {
			return m.who + " configures " + t.IfName, nil
		}
	}
	return "", nil
}
