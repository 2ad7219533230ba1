package devinfo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// infoFile is the attachment's device-info file at one point of an ADD: before or after the delegates run.
type infoFile struct {
	name string // "" = the attachment has no file

	text     []byte        // content; nil = the file is missing
	original []byte        // content from another program, perhaps replaced by devinfo since; nil = none
	external *devinfo.Info // decoded from original, else from the device plugin's file; nil = neither is there and valid
	own      *devinfo.Info // content that devinfo wrote, in a former ADD or for the delegates; nil = none
}

// readInfoFile reads the device-info file at the beginning of ADD. former is the entry of a former, live ADD; nil = none. If
// no other program wrote a valid file, readInfoFile reads the device plugin's file, which the runtime should have copied. It
// returns an error if the file belongs to another attachment.
func (c *Call) readInfoFile(name string, former *journal.Entry) (f infoFile, err error) {
	if name == "" {
		return f, nil
	}
	f.name = name
	foreign, err := c.Foreign(c.Key, journal.OfFile, name)
	if foreign != "" {
		err = failure.New(failure.Config, fmt.Errorf("device-info file %s: %s", c.Attachment.Path, foreign), "set runtimeConfig.CNIDeviceInfoFile to a path that no other attachment uses")
	}
	if err != nil {
		return f, err
	}
	if former != nil && former.Path() == c.Infos.Path(name) {
		f.own, f.original = ownInfo(former), former.Original
	}
	if f.own != nil && f.original != nil {
		if f.external, err = parseInfo(c.Infos, name, f.original, c.Log); err != nil {
			return f, err
		}
	}
	if f, err = c.reread(f); err != nil || f.external != nil {
		return f, err
	}
	f.external, err = c.devicePluginInfo()
	return f, err
}

// ownInfo returns what ADD wrote to the device-info file according to its entry; nil = nothing of its own.
func ownInfo(e *journal.Entry) *devinfo.Info {
	if e.Kept {
		return nil
	}
	info, _ := devinfo.Parse(e.Info) // nil if ADD wrote nothing
	return info
}

// reread reads the file again. If it is not devinfo's own content any more, another program, such as a delegate, has written
// it.
func (c *Call) reread(f infoFile) (infoFile, error) {
	if f.name == "" {
		return f, nil
	}
	text, now, err := c.readInfo(c.Infos, f.name)
	if f.text = text; text != nil && !sameInfo(text, f.own) {
		f.own, f.original, f.external = nil, text, cmp.Or(now, f.external)
	}
	return f, err
}

// devicePluginInfo reads the device plugin's file about the device (section 4.1).
func (c *Call) devicePluginInfo() (*devinfo.Info, error) {
	if c.Config.ResourceName == "" || c.Config.DeviceID == "" {
		return nil, nil
	}
	dir := store.Open(c.Node.DevicePluginDir)
	_, info, err := c.readInfo(dir, devinfo.DevicePluginFile(c.Config.ResourceName, c.Config.DeviceID))
	if errors.As(err, new(*store.NameError)) {
		return nil, &config.Problem{Key: "resourceName", Value: fmt.Sprintf("%q", c.Config.ResourceName), Want: "a resource such as vendor.example/name: " + err.Error()}
	}
	return info, err
}

// readInfo returns the content of a device-info file, raw and decoded. Both are nil if the file is missing. If
// the file is invalid, or of a type that the specification does not have, info is nil and a warning is logged.
func (c *Call) readInfo(dir *store.Dir, name string) (text []byte, info *devinfo.Info, err error) {
	text, err = dir.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, failure.New(failure.Code(err), err, "remove the file or directory at this path")
	}
	info, err = parseInfo(dir, name, text, c.Log)
	return text, info, err
}

func parseInfo(dir *store.Dir, name string, text []byte, log *slog.Logger) (*devinfo.Info, error) {
	info, err := dir.Parse(name, text)
	if errors.As(err, new(*store.CorruptError)) {
		log.Warn("ignoring the device-info file", "error", err)
		return nil, nil
	}
	if err == nil && devinfo.Keys(info.Type) == nil {
		log.Warn("ignoring the device-info file, whose type is unknown", "file", dir.Path(name), "type", info.Type)
		return nil, nil
	}
	return info, err
}

// facts returns the facts that ADD keeps if no better source has them. They are the external facts, merged with
// devinfo's own if these are about the device that is found now, or else declared.
func (f infoFile) facts(device *discovery.Device, declared *devinfo.Info) *devinfo.Info {
	switch {
	case f.own == nil || !sameDevice(f.own, cmp.Or(device.Info, declared)):
		return f.external
	case f.external == nil:
		return f.own // Merge would raise its version, although this ADD repeats the former one
	}
	return devinfo.Merge(f.external, f.own, nil)
}

// sameDevice reports whether earlier device information is about the device that is known now. A socket whose path
// neither the kernel nor the configuration names counts as the same device.
func sameDevice(earlier, now *devinfo.Info) bool {
	if now == nil || now.Type != earlier.Type {
		return false
	}
	id := discovery.Identity(now)
	return id == discovery.Identity(earlier) || id == "" && discovery.IsSocket(now.Type)
}

func setContent(dir *store.Dir, name string, text []byte) error {
	if text == nil {
		return dir.Remove(name)
	}
	if now, err := dir.Read(name); err == nil && bytes.Equal(now, text) {
		return nil
	}
	return dir.Write(name, text)
}

// sameInfo reports whether all readers of a file, nil if it is missing, read info from it, which is not nil. A file with a
// key in another letter case differs, because Validate refuses such a key, and so does one with "punt", because only Parse
// reads it as "inject-punt".
func sameInfo(file []byte, info *devinfo.Info) bool {
	now, err := devinfo.Parse(file)
	if err != nil || now.Validate().Err() != nil || bytes.Contains(file, []byte(`"punt"`)) {
		return false
	}
	is, _ := json.Marshal(now) // compact, like the entry that info may be from
	want, _ := json.Marshal(info)
	return bytes.Equal(is, want)
}
