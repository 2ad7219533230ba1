package check

import (
	"fmt"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
)

// Target returns the device that ADD was asked for, without the device-info file. The error
// says that the entry's Declared is invalid; the rest of the target can be used all the same.
func Target(e *journal.Entry) (discovery.Target, error) {
	asked := e.Asked
	t := discovery.Target{
		Netns: e.Netns, IfName: e.IfName, PCIID: asked.PCIID, SocketPath: asked.SocketPath,
		FollowLower: asked.FollowLower, SubfunctionParent: asked.SubfunctionParent,
	}
	for _, id := range asked.DeviceIDs {
		t.DeviceIDs = append(t.DeviceIDs, config.NamedID(id))
	}
	if asked.Declared == nil {
		return t, nil
	}
	declared, err := devinfo.Parse(asked.Declared)
	if err != nil {
		return t, fmt.Errorf("journal entry of %s: what was declared: %w", e.Key, err)
	}
	t.Declared = declared
	return t, nil
}
