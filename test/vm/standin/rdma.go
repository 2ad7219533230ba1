package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/vishvananda/netlink"
)

func rdmaAdd(args *skel.CmdArgs) error {
	var c common
	if err := parse(args.StdinData, &c); err != nil {
		return err
	}
	mode, err := netlink.RdmaSystemGetNetnsMode()
	switch {
	case c.PrevResult == nil:
		return errors.New("rdma must be called as part of a plugin chain")
	case err != nil || mode != "exclusive":
		return fmt.Errorf("RDMA subsystem namespace awareness mode is %q (%w), not exclusive", mode, err)
	case sys() == "/sys":
		return errors.New("the stand-in cannot move an RDMA device of the kernel: it has STANDIN_SYS for that")
	}
	dir := pciDir(c.DeviceID)
	if err := os.Rename(dir+"/infiniband", dir+"/moved"); err != nil {
		return fmt.Errorf("failed to get RDMA devices for PCI device %s: %w", c.DeviceID, err)
	}
	return json.NewEncoder(os.Stdout).Encode(c.PrevResult)
}

// rdmaDel does nothing if the network namespace no longer exists, because the kernel has moved the device back.
func rdmaDel(args *skel.CmdArgs) error {
	var c common
	if err := parse(args.StdinData, &c); err != nil || args.Netns == "" {
		return err
	}
	dir := pciDir(c.DeviceID)
	if err := os.Rename(dir+"/moved", dir+"/infiniband"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
