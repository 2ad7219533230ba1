package plugin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/attachment"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
)

// infoFile is the attachment's device-info file at one moment of an ADD: before the delegates run, or
// after that.
type infoFile struct {
	dir  *store.Dir
	name string // "" = the attachment has no file
	log  *slog.Logger

	text     []byte        // content; nil = the file is missing
	original []byte        // content that another program wrote last, perhaps before devinfo did; nil = none
	external *devinfo.Info // the same, decoded; if there is none, the device plugin's file; nil = neither
	own      *devinfo.Info // content that devinfo wrote, in a former ADD or for the delegates; nil = none
}

// readInfoFile reads the device-info file as ADD finds it. written is the content that a former ADD wrote.
// A file that belongs to another attachment or contradicts the configuration is an error. If no other
// program wrote the file, readInfoFile reads the device plugin's, which the runtime should have copied.
func (r *request) readInfoFile(written *devinfo.Info) (infoFile, error) {
	f := infoFile{dir: r.plugin.Infos, name: r.fileName, log: r.log}
	if f.name != "" {
		foreign, err := r.foreign(journal.OfFile, f.name)
		if foreign != "" {
			err = fail(codeConfig, fmt.Errorf("device-info file %s: %s", r.att.Path, foreign), "set runtimeConfig.CNIDeviceInfoFile to a path that no other attachment uses")
		}
		if err != nil {
			return f, err
		}
		if f.text, f.external, err = readInfo(r.log, f.dir, f.name); err != nil {
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
	if f.external == nil && attachment.Idle(r.cfg, r.declared) {
		return f, fail(codeConfig, errors.New("the configuration gives devinfo nothing to do"),
			`chain it after the plugin that creates the interface and passes a prevResult, or list child plugins ("delegates": [{"type": …}]), `+
				`or name the device ("deviceID": "0000:01:00.2", or "deviceInfo": {"type": …})`)
	}
	return f, r.checkType(f.external)
}

// devicePluginInfo reads the file that the device plugin wrote about the device (section 4.1); nil if
// the file is missing, or the configuration has no resourceName or deviceID to name it by.
func (r *request) devicePluginInfo() (*devinfo.Info, error) {
	if r.cfg.ResourceName == "" || r.cfg.DeviceID == "" {
		return nil, nil
	}
	_, info, err := readInfo(r.log, r.plugin.Pool, devinfo.DevicePluginFile(r.cfg.ResourceName, r.cfg.DeviceID))
	if as[*store.NameError](err) {
		return nil, &config.Problem{Key: "resourceName", Value: fmt.Sprintf("%q", r.cfg.ResourceName), Want: "a resource such as vendor.example/name: " + err.Error()}
	}
	return info, err
}

// checkType refuses a declared type that contradicts the file's, because ADD changes neither.
func (r *request) checkType(file *devinfo.Info) error {
	if r.declared == nil || file == nil || r.declared.Type == "" || file.Type == "" || r.declared.Type == file.Type {
		return nil
	}
	return fail(codeMismatch, fmt.Errorf("deviceInfo declares type %q, but the device-info file %s has type %q", r.declared.Type, r.att.Path, file.Type),
		"correct deviceInfo, or the device plugin that wrote the file")
}

// readInfo returns the content of a device-info file and its meaning. Both are nil if the file is
// missing; info is nil, and a warning is logged, if the file is invalid.
func readInfo(log *slog.Logger, dir *store.Dir, name string) (text []byte, info *devinfo.Info, err error) {
	text, err = dir.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, fail(codeOf(err), err, "remove the file or directory at this path")
	}
	info, err = dir.Parse(name, text)
	if as[*store.CorruptError](err) {
		log.Warn("ignoring the device-info file", "error", err)
		return text, nil, nil
	}
	return text, info, err
}

// reread reads the file after the delegates have run. Before that, devinfo wrote written for them; if
// the file now differs, a delegate has written it.
func (f infoFile) reread(written *devinfo.Info) (infoFile, error) {
	f.own = written
	if f.name == "" {
		return f, nil
	}
	text, now, err := readInfo(f.log, f.dir, f.name)
	f.text = text
	if now != nil && (written == nil || !bytes.Equal(now.Encode(), written.Encode())) {
		f.external, f.own, f.original = now, nil, text
	}
	return f, err
}

// facts returns the facts of the file that ADD keeps if no better source has them: facts of other
// programs and, if devinfo wrote them about this device, its own. The path of a socket may be known from
// the file alone.
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

// write makes info the content of the file; nil restores the content before devinfo wrote.
func (f infoFile) write(info *devinfo.Info) error {
	switch {
	case f.name == "" || info == nil && f.own == nil || info != nil && sameInfo(f.text, info):
		return nil
	case info == nil:
		return f.restore()
	}
	return f.dir.Write(f.name, info.Encode())
}

// restore undoes write.
func (f infoFile) restore() error { return setContent(f.dir, f.name, f.original) }

// setContent writes a file unless it has that content already; nil removes it.
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
		!bytes.Contains(file, []byte(`"punt"`)) // Parse reads it as inject-punt
}

// compact encodes device information as the journal keeps it.
func compact(info *devinfo.Info) []byte {
	var b bytes.Buffer
	_ = json.Compact(&b, info.Encode()) // it is JSON
	return b.Bytes()
}
