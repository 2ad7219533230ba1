package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/store"
)

// pluginFile returns the path and content of the device-info file that a device plugin would write for a device without
// a network. Multus copies this file before its ADD. The path is "" if the driver writes no such file: the device has a
// network or no description, or the driver has no journal or no directory of device plugins.
func (l *Leases) pluginFile(at *state.Attachment) (path, content string) {
	info, err := devinfo.Parse(at.Info) // the record contains it in compact form
	if !at.Bare() || at.NodeDevice == nil || err != nil || l.node.Journal == nil || l.node.DevicePluginDir == "" {
		return "", ""
	}
	resource, id := namesForMultus(at)
	return filepath.Join(l.node.DevicePluginDir, devinfo.DevicePluginFile(resource, id)), string(info.Encode())
}

// pluginFiles returns the content of all such files of a claim, by path.
func (l *Leases) pluginFiles(record *state.Claim) map[string]string {
	files := map[string]string{}
	for n := range record.Attachments {
		if path, content := l.pluginFile(&record.Attachments[n]); path != "" {
			files[path] = content
		}
	}
	return files
}

func namesForMultus(at *state.Attachment) (resource, id string) {
	published := Published(at.NodeDevice).Attributes
	return inventory.Text(published, inventory.ResourceName), inventory.Text(published, inventory.DeviceID)
}

// HasPluginFile reports whether the file of [Node.WritePluginFile] exists. A device plugin may have written it.
func (n *Node) HasPluginFile(at *state.Attachment) bool {
	path, _ := n.Leases.pluginFile(at)
	if path == "" {
		return true
	}
	_, err := store.Open(filepath.Dir(path)).Read(filepath.Base(path))
	return !errors.Is(err, fs.ErrNotExist)
}

// WritePluginFile writes the device-info file of a device plugin for a device without a network. Call
// [Leases.LeaseBare] first, which records the file. The lease proves that no device plugin has given the device to a
// pod, so WritePluginFile replaces the file of a former device plugin. It keeps the file if a device plugin still
// advertises the device.
func (n *Node) WritePluginFile(at *state.Attachment) error {
	path, content := n.Leases.pluginFile(at)
	if path == "" {
		return nil
	}
	dir, name := store.Open(filepath.Dir(path)), filepath.Base(path)
	now, err := dir.Read(name)
	if err == nil && string(now) == content {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		resource, id := namesForMultus(at)
		live, err := n.Advertised(context.Background(), resource, id)
		if err != nil {
			return fmt.Errorf("device-info file %s: cannot tell whether its device plugin runs: make sure that the kubelet runs, or remove the file: %w", path, err)
		}
		if live {
			n.Log.Warn("keeping the device-info file of a device plugin that advertises the device of a claim: remove the device from the configuration of the plugin",
				"file", path, "device", at.Device, "resource", resource)
			return nil
		}
	}
	err = dir.Write(name, []byte(content))
	n.Reached("device plugin's file")
	return err
}
