package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/test/sandbox"
	"devinfo-cni.io/test/undertest"
)

// The node's paths; /run is our own.
const (
	own      = "/run/load"
	infoDir  = own + "/info"
	stateDir = own + "/state"
	cdiDir   = own + "/cdi"
	ipamDir  = own + "/ipam"
	sockets  = own + "/sockets"
	settings = own + "/node.json"
	master   = "nic" // a veth
	bridge   = "br0"
)

// A node has interfaces for plugins to work on, and network namespaces for pods.
type node struct{ pods []string }

func newNode(vfs, pods int) (*node, error) {
	if err := undertest.Unpack(hosttxttest.ManyVFs(vfs), own+"/sys"); err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`{"deviceInfoDir": %q, "stateDir": %q, "cdiDir": %q, "sysfs": %q, "socketDirs": [%q]}`,
		infoDir, stateDir, cdiDir, own+"/sys", sockets)
	err := errors.Join(os.WriteFile(settings, []byte(text), 0o644), os.MkdirAll(sockets, 0o755),
		os.Setenv("DEVINFO_NODE_CONFIG", settings))
	if err != nil {
		return nil, err
	}
	br := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()} // bridge plugins that make one bridge at once fail
	br.Name = bridge
	br.HardwareAddr = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01} // else it changes with its ports, and CHECK refuses that
	if err := errors.Join(sandbox.AddVeth(master, "wire"), netlink.LinkAdd(br), netlink.LinkSetUp(br)); err != nil {
		return nil, err
	}
	n := &node{}
	for p := range pods {
		path := fmt.Sprint(own, "/netns/pod", p)
		if err := sandbox.NewNetns(path); err != nil {
			return nil, err
		}
		n.pods = append(n.pods, path)
	}
	return n, nil
}

// left is the error that names what the attachments have left on the node. It removes
// the pods' network namespaces.
func (n *node) left() error {
	var list []string
	for _, dir := range []string{infoDir, stateDir, cdiDir, ipamDir, sockets, caches} {
		list = append(list, filesBelow(dir)...)
	}
	for _, pod := range n.pods {
		names, err := linksIn(pod)
		if err != nil {
			return err
		}
		for _, name := range names {
			list = append(list, name+" in "+pod)
		}
		if err := errors.Join(unix.Unmount(pod, 0), os.Remove(pod)); err != nil {
			return err
		}
	}
	names, err := linksIn("/proc/self/ns/net")
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != master && name != "wire" && name != bridge {
			list = append(list, name)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), own+"/netns") {
		list = append(list, "a mounted network namespace")
	}
	if len(list) == 0 {
		return nil
	}
	more := max(0, len(list)-20)
	return fmt.Errorf("%d things are left: %s (and %d more)", len(list), strings.Join(list[:len(list)-more], ", "), more)
}

// filesBelow lists what is left of attachments in a directory; host-local's lock and its
// note of the last address are the network's.
func filesBelow(dir string) (list []string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.Name() == "lock" || strings.HasPrefix(d.Name(), "last_reserved_ip"):
		case !d.IsDir() || strings.Contains(path, "@"): // of an attachment
			list = append(list, path)
		}
		return nil
	})
	if err != nil {
		list = append(list, err.Error())
	}
	return list
}

// linksIn names the interfaces of a network namespace, but for lo.
func linksIn(path string) (names []string, err error) {
	handle, err := sandbox.Links(path)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	links, err := handle.LinkList()
	for _, l := range links {
		if l.Attrs().Name != "lo" {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, err
}

// noProcess is the error that something which a call started still runs, as a delegate
// does whose caller was killed. It may take a while to end.
func noProcess() error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case pid == 0 && time.Now().After(deadline):
			children, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
			return fmt.Errorf("processes that still run: %s", children)
		}
	}
}
