package audit

import (
	"encoding/json"
	"fmt"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
)

// formatAsked is the format from which on entries keep what ADD was asked.
const formatAsked = 2

const notKept = "what ADD was asked (deviceID, deviceInfo, followLower, subfunctionParent): " +
	"the journal's entry is an older devinfo's, and does not keep it; the defaults were taken"

// Target returns the device that ADD was asked for, without the device-info file. An entry
// of format 1 holds only the runtime's deviceID of a delegating ADD: the rest takes the
// configuration's defaults. The error says that the entry's Declared is invalid; the rest
// of the target can be used all the same.
func Target(e *journal.Entry) (discovery.Target, error) {
	t := discovery.Target{Netns: e.Netns, IfName: e.IfName, FollowLower: true}
	if e.Format < formatAsked {
		id := config.NamedID{Key: "runtimeConfig.deviceID"}
		_ = json.Unmarshal(e.CapabilityArgs["deviceID"], &id.ID) // "" where it has none, which Find ignores
		t.DeviceIDs = []config.NamedID{id}
		return t, nil
	}
	asked := e.Asked
	for _, id := range asked.DeviceIDs {
		t.DeviceIDs = append(t.DeviceIDs, config.NamedID(id))
	}
	t.PCIID, t.SocketPath = asked.PCIID, asked.SocketPath
	t.FollowLower, t.SubfunctionParent = asked.FollowLower, asked.SubfunctionParent
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
