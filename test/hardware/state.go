package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/hostdev"
)

// state is a function as a person sees it.
type state struct {
	Driver, Override     string
	IfName, MAC          string `json:",omitempty"`
	MTU                  int    `json:",omitempty"`
	Up                   bool
	RDMA, VDPA, Auxilary []string `json:",omitempty"` // names
}

// state reads what the kernel shows without package restore, so that a mistake there is seen.
func (n *node) state(ref hostdev.Ref) (state, error) {
	return readState("/sys/bus/pci/devices/" + ref.PCI)
}

func readState(dir string) (s state, err error) {
	if _, err := os.Stat(dir); err != nil {
		return s, err
	}
	driver, _ := os.Readlink(dir + "/driver")
	s.Driver = filepath.Base(driver)
	override, err := os.ReadFile(dir + "/driver_override")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	s.Override = strings.TrimSpace(string(override))
	nets, _ := filepath.Glob(dir + "/net/*")
	more, _ := filepath.Glob(dir + "/virtio*/net/*")
	if nets = append(nets, more...); len(nets) > 0 {
		s.IfName = filepath.Base(nets[0])
		l, err := netlink.LinkByName(s.IfName)
		if err != nil {
			return s, err
		}
		s.MAC, s.MTU, s.Up = l.Attrs().HardwareAddr.String(), l.Attrs().MTU, l.Attrs().RawFlags&unix.IFF_UP != 0
	}
	s.RDMA, s.VDPA, s.Auxilary = below(dir+"/infiniband/*"), below(dir+"/vdpa*"), below(dir+"/*.*.[0-9]*")
	return s, nil
}

func below(pattern string) (names []string) {
	paths, _ := filepath.Glob(pattern)
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

// unlike returns the fields in which a function differs, "MTU: 1500 before, now 1400".
func (s state) unlike(now state) (list []string) {
	compare := func(what string, before, now any) {
		if b, n := fmt.Sprint(before), fmt.Sprint(now); b != n {
			list = append(list, fmt.Sprintf("%s: %s before, now %s", what, b, n))
		}
	}
	compare("driver", s.Driver, now.Driver)
	compare("driver_override", s.Override, now.Override)
	compare("interface", s.IfName, now.IfName)
	compare("MAC", s.MAC, now.MAC)
	compare("MTU", s.MTU, now.MTU)
	compare("up", s.Up, now.Up)
	compare("vDPA devices", s.VDPA, now.VDPA)
	// The kernel numbers these anew when the driver is bound.
	if len(s.RDMA) != len(now.RDMA) {
		compare("RDMA devices", s.RDMA, now.RDMA)
	}
	if !slices.Equal(unnumbered(s.Auxilary), unnumbered(now.Auxilary)) {
		compare("auxiliary devices", s.Auxilary, now.Auxilary)
	}
	return list
}

// unlikeAfterBoot leaves out what a boot sets as it likes: many PFs draw new MACs for their VFs.
func (s state) unlikeAfterBoot(now state) []string {
	now.MAC, now.Up = s.MAC, s.Up
	return s.unlike(now)
}
