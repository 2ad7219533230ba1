package plugin

import (
	"errors"
	"fmt"

	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
)

// unheld refuses a device that another attachment has by a ResourceClaim, which the
// allocator behind this ADD, a device plugin say, knows nothing of.
func (r *request) unheld() error {
	for _, id := range r.cfg.DeviceIDs {
		h, err := r.Journal.HolderOf(id.ID)
		if err != nil {
			r.log.Warn("who has the device by a claim is not known", "device", id.ID, "error", err)
			continue
		}
		if h == nil || h.ContainerID == r.key.ContainerID && h.IfName == r.key.IfName || errors.Is(link.CheckNetns(h.Netns), link.ErrNoNetns) {
			continue
		}
		return fail(codeHeld, fmt.Errorf("%s: %s is held by pod %s (%s, by claim %s): %s cannot have it too", id.Key, id.ID, h.Pod, h.IfName, h.Claim, r.asker()),
			"ask for a device once, by a claim or by Multus, and give no device plugin what cni-dra-driver offers")
	}
	return nil
}

// asker is the pod that ADD is for.
func (r *request) asker() string {
	e := journal.Entry{Key: r.key, Args: r.args}
	if namespace, name := e.PodName(); name != "" {
		return fmt.Sprintf("pod %s/%s (%s)", namespace, name, r.key.IfName)
	}
	return fmt.Sprintf("container %s (%s)", r.key.ContainerID, r.key.IfName)
}
