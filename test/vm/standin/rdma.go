package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/vishvananda/netlink"
)

type rdmaConf struct {
	common
}

// moved is where the RDMA devices of an attachment are while the pod has them, in the tree
// that is in the place of /sys.
func moved(c *rdmaConf, args *skel.CmdArgs) string {
	return filepath.Join(sys(), "moved-"+c.Name+"-"+args.ContainerID+"-"+args.IfName)
}

// rdmaMoved is what DEL goes by.
type rdmaMoved struct{ DeviceID string }

func rdmaAdd(args *skel.CmdArgs) error {
	var c rdmaConf
	if err := parse(args.StdinData, &c); err != nil {
		return err
	}
	result, err := c.previous()
	if err != nil {
		return err
	}
	if mode, err := netlink.RdmaSystemGetNetnsMode(); err != nil || mode != "exclusive" {
		return fmt.Errorf("RDMA subsystem namespace awareness mode is %q (%v), not exclusive", mode, err)
	}
	if c.DeviceID == "" {
		return errors.New(`"deviceID" is required`)
	}
	if sys() == "/sys" {
		return errors.New("the stand-in cannot move an RDMA device of the kernel: it has STANDIN_SYS for that")
	}
	dir := filepath.Join(pciDir(c.DeviceID), "infiniband")
	switch name, err := only(dir); {
	case err != nil:
		return err
	case name == "":
		return fmt.Errorf("failed to get RDMA devices for PCI device %s", c.DeviceID)
	}
	if err := os.Mkdir(moved(&c, args), 0o755); err != nil {
		return err
	}
	if err := save(filepath.Join(moved(&c, args), "state"), rdmaMoved{c.DeviceID}); err != nil {
		return err
	}
	if err := os.Rename(dir, filepath.Join(moved(&c, args), "infiniband")); err != nil {
		return err
	}
	return c.print(result)
}

func rdmaDel(args *skel.CmdArgs) error {
	var c rdmaConf
	if err := parse(args.StdinData, &c); err != nil {
		return err
	}
	if args.Netns == "" { // the kernel has put it back
		return nil
	}
	var was rdmaMoved
	err := load(filepath.Join(moved(&c, args), "state"), &was)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Rename(filepath.Join(moved(&c, args), "infiniband"), filepath.Join(pciDir(was.DeviceID), "infiniband"))
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(moved(&c, args))
}
