package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// SRIOVLocks is the directory where sriov-cni keeps a file for each allocated VF, named by the PCI address. The file
// contains the path of the pod's network namespace (sriov-cni, pkg/utils/pci_allocator.go).
const SRIOVLocks = "/var/lib/cni/sriov/pci"

// SRIOVLock is sriov-cni's allocation of a VF.
type SRIOVLock struct {
	Device string `json:"device"`         // PCI address
	Netns  string `json:"netns"`          // path
	Gone   bool   `json:"gone,omitempty"` // the network namespace no longer exists, so sriov-cni ignores the allocation
}

// ReadSRIOVLocks returns all allocations in the directory, or none if it is missing. A network namespace
// counts as gone only if gone returns no error.
func ReadSRIOVLocks(dir fs.FS, gone func(netns string) (bool, error)) (list []SRIOVLock, err error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the locks of sriov-cni: %w", err)
	}
	for _, e := range entries {
		a, err := pci.Parse(e.Name())
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		netns, err := sriovLock(dir, e.Name())
		if err != nil {
			return nil, err
		}
		if netns != "" {
			list = append(list, SRIOVLock{a.String(), netns, surely(gone(netns))})
		}
	}
	return list, nil
}

// LockedBySRIOV returns the VFs that sriov-cni has allocated to pods, each with a reason for display.
func LockedBySRIOV(dir fs.FS, gone func(netns string) (bool, error)) (map[string]string, error) {
	list, err := ReadSRIOVLocks(dir, gone)
	all := map[string]string{}
	for _, l := range list {
		if !l.Gone {
			all[l.Device] = "sriov-cni has allocated it to network namespace " + l.Netns
		}
	}
	return all, err
}

// sriovLock returns the network namespace that a VF is allocated to, or "".
func sriovLock(dir fs.FS, address string) (netns string, err error) {
	text, err := fs.ReadFile(dir, address)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot read the locks of sriov-cni: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// lockedBySRIOV returns sriov-cni's holder of a VF, or nil if the VF is free or allocated to the pod of by.
func (j *Journal) lockedBySRIOV(l lease, by holderLinks) (*Holder, error) {
	address, ok := strings.CutPrefix(l.ID, "pci-")
	if !ok || l.kind != OfDevice || j.SRIOVLocks == "" {
		return nil, nil
	}
	netns, err := sriovLock(os.DirFS(j.SRIOVLocks), address)
	if err != nil || netns == "" || netns == by.netns || surely(j.NetnsGone(netns)) {
		return nil, err
	}
	return &Holder{Netns: netns, Mode: Exclusive}, nil
}

// surely treats an error as not gone.
func surely(gone bool, err error) bool { return gone && err == nil }
