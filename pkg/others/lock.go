package others

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// Lock is a file of sriov-cni's, by which it refuses a function that a pod has.
type Lock struct {
	Device string `json:"device"`         // PCI address
	Netns  string `json:"netns"`          // path
	Gone   bool   `json:"gone,omitempty"` // the network namespace is: sriov-cni takes the lock for none
}

// ReadLocks reads sriov-cni's directory /var/lib/cni/sriov/pci, where each function that it
// has given to a pod has a file (sriov-cni, pkg/utils, PCIAllocator). No directory means no
// locks; a namespace of which it cannot be told is there.
func ReadLocks(dir fs.FS, gone func(netns string) (bool, error)) (list []Lock, err error) {
	entries, err := fs.ReadDir(dir, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("locks of sriov-cni: %w", err)
	}
	for _, e := range entries {
		a, err := pci.Parse(e.Name())
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		data, err := fs.ReadFile(dir, e.Name())
		if errors.Is(err, fs.ErrNotExist) { // unlocked meanwhile
			continue
		} else if err != nil {
			return nil, fmt.Errorf("locks of sriov-cni: %w", err)
		}
		lock := Lock{Device: a.String(), Netns: strings.TrimSpace(string(data))}
		away, err := gone(lock.Netns)
		lock.Gone = err == nil && away
		list = append(list, lock)
	}
	return list, nil
}

// Locks gives the functions that pods have by [ReadLocks], each with the reason.
func Locks(dir fs.FS, gone func(netns string) (bool, error)) (map[string]string, error) {
	list, err := ReadLocks(dir, gone)
	all := map[string]string{}
	for _, l := range list {
		if !l.Gone {
			all[l.Device] = "sriov-cni has given it to network namespace " + l.Netns
		}
	}
	return all, err
}
