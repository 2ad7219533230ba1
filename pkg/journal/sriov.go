package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// SRIOVLocks is where sriov-cni keeps a file for each VF that it has given away, named by
// the address; it holds the path of the network namespace (sriov-cni, pkg/utils/pci_allocator.go).
const SRIOVLocks = "/var/lib/cni/sriov/pci"

// lockedBySRIOV is the holder of a PCI function by sriov-cni's lock, if it is another network
// namespace than that of the one who asks, and is there; nil = nobody.
func (j *Journal) lockedBySRIOV(l lease, by taker) (*Holder, error) {
	address, ok := strings.CutPrefix(l.ID, "pci-")
	if !ok || l.kind != OfDevice || j.SRIOVLocks == "" {
		return nil, nil
	}
	netns, err := os.ReadFile(filepath.Join(j.SRIOVLocks, address))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	path := strings.TrimSpace(string(netns))
	if path == "" || path == by.netns {
		return nil, nil
	}
	if gone, err := j.NetnsGone(path); err == nil && gone {
		return nil, nil
	}
	return &Holder{Netns: path, Mode: Exclusive}, nil
}
