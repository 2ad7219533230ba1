package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/host/store"
)

// infoFile returns the device-info file of an attachment from the record, because node settings may have changed.
func infoFile(at *state.Attachment) (dir *store.Dir, name string) {
	return store.Open(filepath.Dir(at.InfoFile)), filepath.Base(at.InfoFile)
}

// writeInitialInfo writes the device-info file before ADD, for plugins such as ovs-cni that read it, and returns its
// content, or nil if nothing is known about the device. DEL removes the file, because the record already names it.
func (r *Runner) writeInitialInfo(at *state.Attachment) ([]byte, error) {
	outside := *at
	outside.Netns = "" // the pod's interface does not exist yet
	info := r.Node.Describe(&outside)
	if info == nil {
		return nil, nil
	}
	dir, name := infoFile(at)
	err := dir.Write(name, info.Encode())
	r.Reached("device-info file")
	return info.Encode(), err
}

// finalInfo reads the device-info file after ADD. If the file is missing or still has the initial content from
// [Runner.writeInitialInfo], finalInfo writes the facts that are known now, or removes the file if there are
// none. An invalid file is an error, because the pod could not find its device. finalInfo returns nil for a file
// of another major version.
func (r *Runner) finalInfo(at *state.Attachment, initial []byte) (*devinfo.Info, error) {
	dir, name := infoFile(at)
	data, err := dir.Read(name)
	if errors.Is(err, fs.ErrNotExist) || initial != nil && bytes.Equal(data, initial) {
		info := r.Node.Describe(at)
		if info == nil { // for example, the interface belongs to another device
			return nil, dir.Remove(name)
		}
		at.Info = info.Encode()
		return info, dir.Write(name, at.Info)
	}
	if err != nil {
		return nil, err
	}
	at.Info = data
	info, err := dir.Parse(name, data)
	switch {
	case errors.As(err, new(*devinfo.VersionError)):
		r.Log.Warn("device-info file has an unknown version", "network", at.Network, "error", err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w; fix the CNI plugin that wrote it", err)
	}
	return info, nil
}

func (r *Runner) metadata(at *state.Attachment, info *devinfo.Info) (json.RawMessage, error) {
	data, warnings, err := metadata.NetworkData(at.Result, at.IfName, at.Netns)
	if err != nil {
		return nil, WrapReason(err, "network %s", at.Network)
	}
	_, more := metadata.Data(at.Result, devices.Shown(at)) // only the warnings are needed: the status is made from the record
	for _, w := range append(warnings, more...) {
		r.Log.Warn(w, "network", at.Network, "sandbox", at.Sandbox, "ifName", at.IfName)
	}
	return config.Encode(devices.Metadata{NetworkData: data, Attributes: r.Node.Attributes(at, info)}), nil
}
