package dra

import (
	"cmp"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/inventory"
)

// discover describes the exclusive device of an attachment as the devinfo plugin would;
// nil = there is none, or it cannot be described, which is no reason to fail.
func (a *Agent) discover(at *state.Attachment) *devinfo.Info {
	if a.Finder == nil || at.Node == nil || at.Node.Shared() {
		return nil
	}
	id := cmp.Or(at.Node.VDPA, at.Node.Aux, at.Node.PCI)
	found, err := a.Finder.Find(discovery.Target{
		DeviceIDs: []config.NamedID{{Key: "device", ID: id}}, Netns: at.Netns, IfName: at.IfName,
	})
	if err == nil && found.Problem != nil {
		err = found.Problem
	}
	if err == nil && found.Info == nil {
		return nil
	}
	var info *devinfo.Info
	if err == nil {
		info = devinfo.Merge(nil, found.Info, nil)
		err = info.Validate().Err()
	}
	if err != nil {
		a.Log.Warn("the device cannot be described: its containers get no device information", "device", at.Device, "error", err)
		return nil
	}
	return info
}

// writeInfo writes the device-info file that no plugin has written. DEL removes it.
func (a *Agent) writeInfo(at *state.Attachment) (*devinfo.Info, error) {
	info := a.discover(at)
	if info == nil {
		return nil, nil
	}
	name, err := a.infos.Name(at.InfoFile)
	if err != nil {
		return nil, err
	}
	data := info.Encode()
	if err := a.infos.Write(name, data); err != nil {
		return nil, fmt.Errorf("device-info file of network %s: %w", at.Network, err)
	}
	at.Info = data
	return info, nil
}

// attributesOf are those that a device is offered with, as metadata has them; with the
// driver that it has for the pod, which leaves it no interface on the node.
func attributesOf(at *state.Attachment) map[string]resourceapi.DeviceAttribute {
	all := make(map[string]resourceapi.DeviceAttribute, len(at.Node.Published.Attributes))
	for name, value := range at.Node.Published.Attributes {
		all[string(name)] = value
	}
	if at.Driver != "" {
		all[string(inventory.AttrDriver)] = resourceapi.DeviceAttribute{StringValue: &at.Driver}
		delete(all, string(inventory.AttrIfName))
	}
	return all
}
