package plugin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
)

// infoFile is the attachment's device-info file at one point of an ADD: before or after the delegates run.
type infoFile struct {
	*call
	name string // "" = the attachment has no file

	text     []byte        // content; nil = the file is missing
	original []byte        // content from another program, perhaps replaced by devinfo since; nil = none
	external *devinfo.Info // decoded from original, else from the device plugin's file; nil = neither is there and valid
	own      *devinfo.Info // content that devinfo wrote, in a former ADD or for the delegates; nil = none
}

// readInfoFile reads the device-info file at the beginning of ADD. written is the content that a former ADD
// wrote. If no other program wrote a valid file, readInfoFile reads the device plugin's file, which the runtime
// should have copied. It returns an error if the file belongs to another attachment or has another type than the
// configuration declares, or if neither the file nor the configuration leads to a device.
func (r *request) readInfoFile(written *devinfo.Info) (infoFile, error) {
	f := infoFile{call: r.call, name: r.fileName}
	if f.name != "" {
		foreign, err := r.foreignReason(journal.OfFile, f.name)
		if foreign != "" {
			err = fail(codeConfig, fmt.Errorf("device-info file %s: %s", r.att.Path, foreign), "set runtimeConfig.CNIDeviceInfoFile to a path that no other attachment uses")
		}
		if err != nil {
			return f, err
		}
		if f.text, f.external, err = r.readInfo(r.plugin.Infos, f.name); err != nil {
			return f, err
		}
		if written != nil && (f.text == nil || sameInfo(f.text, written)) {
			f.own, f.external = written, nil
		} else {
			f.original = f.text
		}
		if f.external == nil {
			if f.external, err = r.devicePluginInfo(); err != nil {
				return f, err
			}
		}
	}
	if f.external == nil && attachment.LeadsToNoDevice(r.cfg, r.declared) {
		return f, fail(codeConfig, errors.New("the configuration gives devinfo nothing to do"),
			`chain it after the plugin that creates the interface and passes a prevResult, or list child plugins ("delegates": [{"type": …}]), `+
				`or name the device ("deviceID": "0000:01:00.2", or "deviceInfo": {"type": …})`)
	}
	return f, r.checkType(f.external)
}

// devicePluginInfo reads the device plugin's file about the device (section 4.1). It returns nil if the file is
// missing, or the configuration lacks the resourceName or deviceID that make up its name.
func (r *request) devicePluginInfo() (*devinfo.Info, error) {
	if r.cfg.ResourceName == "" || r.cfg.DeviceID == "" {
		return nil, nil
	}
	dir := store.Open(r.plugin.Node.DevicePluginDir)
	_, info, err := r.readInfo(dir, devinfo.DevicePluginFile(r.cfg.ResourceName, r.cfg.DeviceID))
	if as[*store.NameError](err) {
		return nil, &config.Problem{Key: "resourceName", Value: fmt.Sprintf("%q", r.cfg.ResourceName), Want: "a resource such as vendor.example/name: " + err.Error()}
	}
	return info, err
}

// checkType returns an error if the declared type differs from the file's, because ADD changes neither.
func (r *request) checkType(file *devinfo.Info) error {
	if r.declared == nil || file == nil || r.declared.Type == "" || file.Type == "" || r.declared.Type == file.Type {
		return nil
	}
	return fail(codeMismatch, fmt.Errorf("deviceInfo declares type %q, but the device-info file %s has type %q", r.declared.Type, r.att.Path, file.Type),
		"correct deviceInfo, or the device plugin that wrote the file")
}

// readInfo returns the content of a device-info file, raw and decoded. Both are nil if the file is missing. If
// the file is invalid, info is nil and a warning is logged.
func (c *call) readInfo(dir *store.Dir, name string) (text []byte, info *devinfo.Info, err error) {
	text, err = dir.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, fail(codeOf(err), err, "remove the file or directory at this path")
	}
	info, err = dir.Parse(name, text)
	if as[*store.CorruptError](err) {
		c.log.Warn("ignoring the device-info file", "error", err)
		return text, nil, nil
	}
	return text, info, err
}

// reread reads the file after the delegates. If it differs from written, devinfo's content, a delegate has written it.
func (f infoFile) reread(written *devinfo.Info) (infoFile, error) {
	f.own = written
	if f.name == "" {
		return f, nil
	}
	text, now, err := f.readInfo(f.plugin.Infos, f.name)
	f.text = text
	if now != nil && (written == nil || !bytes.Equal(now.Encode(), written.Encode())) {
		f.external, f.own, f.original = now, nil, text
	}
	return f, err
}

// facts returns the facts that ADD keeps if no better source has them. They are the external facts, merged with
// devinfo's own if these are about the same device. A socket whose path neither the kernel nor the configuration
// names counts as the same device.
func (f infoFile) facts(device *discovery.Device, declared *devinfo.Info) *devinfo.Info {
	info := cmp.Or(device.Info, declared)
	if f.own == nil || info == nil || info.Type != f.own.Type {
		return f.external
	}
	if id := discovery.Identity(info); id != discovery.Identity(f.own) && (id != "" || !discovery.IsSocket(info.Type)) {
		return f.external
	}
	return devinfo.Merge(f.external, f.own, nil)
}

// write writes info to the file. If info is nil it restores the content from before devinfo wrote.
func (f infoFile) write(info *devinfo.Info) error {
	switch {
	case f.name == "" || info == nil && f.own == nil || info != nil && sameInfo(f.text, info):
		return nil
	case info == nil:
		return f.restore()
	}
	return f.plugin.Infos.Write(f.name, info.Encode())
}

func (f infoFile) restore() error { return setContent(f.plugin.Infos, f.name, f.original) }

// setContent writes a file unless it already has that content. A nil text removes the file.
func setContent(dir *store.Dir, name string, text []byte) error {
	if text == nil {
		return dir.Remove(name)
	}
	if now, err := dir.Read(name); err == nil && bytes.Equal(now, text) {
		return nil
	}
	return dir.Write(name, text)
}

// sameInfo reports whether all readers of a file read info from it. A file with a key in another letter
// case differs, because Validate refuses such a key.
func sameInfo(file []byte, info *devinfo.Info) bool {
	now, err := devinfo.Parse(file)
	return err == nil && bytes.Equal(compact(now), compact(info)) && now.Validate().Err() == nil &&
		!bytes.Contains(file, []byte(`"punt"`)) // Parse reads it as "inject-punt"
}

// compact encodes device information as the journal stores it.
func compact(info *devinfo.Info) []byte {
	var b bytes.Buffer
	_ = json.Compact(&b, info.Encode()) // Encode returns valid JSON
	return b.Bytes()
}
