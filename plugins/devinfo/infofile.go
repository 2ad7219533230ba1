package plugin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// InfoFile is the attachment's device-info file at one point of an ADD: before or after the delegates run. If ADD fails,
// the file gets its Original of before the delegates (Addition.original), or what a former, live ADD wrote.
type InfoFile struct {
	Name string // "" = the attachment has no file

	Text     []byte        // content; nil = the file is missing
	Original []byte        // content from another program, perhaps replaced by devinfo since; nil = none
	External *devinfo.Info // decoded from Original, else from the device plugin's file; nil = neither is there and valid
	Own      *devinfo.Info // content that devinfo wrote, in a former ADD or for the delegates; nil = none
}

// readInfoFile reads the device-info file at the beginning of ADD. written is the content that a former ADD
// wrote. If no other program wrote a valid file, readInfoFile reads the device plugin's file, which the runtime
// should have copied. It returns an error if the file belongs to another attachment or has another type than the
// configuration declares, or if neither the file nor the configuration leads to a device.
func (a *Addition) readInfoFile(written *devinfo.Info) (err error) {
	f := &a.File
	if f.Name != "" {
		foreign, err := a.Foreign(a.Key, journal.OfFile, f.Name)
		if foreign != "" {
			err = failure.New(failure.Config, fmt.Errorf("device-info file %s: %s", a.Attachment.Path, foreign), "set runtimeConfig.CNIDeviceInfoFile to a path that no other attachment uses")
		}
		if err != nil {
			return err
		}
		if f.Text, f.External, err = a.ReadInfo(a.Infos, f.Name); err != nil {
			return err
		}
		if written != nil && (f.Text == nil || SameInfo(f.Text, written)) {
			f.Own, f.External = written, nil
		} else {
			f.Original = f.Text
		}
		if f.External == nil {
			if f.External, err = a.devicePluginInfo(); err != nil {
				return err
			}
		}
	}
	a.original = f.Original
	if f.External == nil && attachment.LeadsToNoDevice(a.Config, a.Declared) {
		return failure.New(failure.Config, errors.New("the configuration gives devinfo nothing to do"),
			`chain it after the plugin that creates the interface and passes a prevResult, or list child plugins ("delegates": [{"type": …}]), `+
				`or name the device ("deviceID": "0000:01:00.2", or "deviceInfo": {"type": …})`)
	}
	return a.CheckType(f.External)
}

// devicePluginInfo reads the device plugin's file about the device (section 4.1).
func (a *Addition) devicePluginInfo() (*devinfo.Info, error) {
	if a.Config.ResourceName == "" || a.Config.DeviceID == "" {
		return nil, nil
	}
	dir := store.Open(a.Node.DevicePluginDir)
	_, info, err := a.ReadInfo(dir, devinfo.DevicePluginFile(a.Config.ResourceName, a.Config.DeviceID))
	if errors.As(err, new(*store.NameError)) {
		return nil, &config.Problem{Key: "resourceName", Value: fmt.Sprintf("%q", a.Config.ResourceName), Want: "a resource such as vendor.example/name: " + err.Error()}
	}
	return info, err
}

// CheckType returns an error if the declared type differs from the file's, because ADD changes neither.
func (a *Addition) CheckType(file *devinfo.Info) error {
	if a.Declared == nil || file == nil || a.Declared.Type == "" || file.Type == "" || a.Declared.Type == file.Type {
		return nil
	}
	return failure.New(failure.Mismatch, fmt.Errorf("deviceInfo declares type %q, but the device-info file %s has type %q", a.Declared.Type, a.Attachment.Path, file.Type),
		"correct deviceInfo, or the device plugin that wrote the file")
}

// knownTypes are those of the Device Information Specification 1.1.0. A reader ignores a file of another type.
var knownTypes = []devinfo.Type{devinfo.TypePCI, devinfo.TypeVDPA, devinfo.TypeVhostUser, devinfo.TypeMemif}

// ReadInfo returns the content of a device-info file, raw and decoded. Both are nil if the file is missing. If
// the file is invalid, info is nil and a warning is logged.
func (c *Call) ReadInfo(dir *store.Dir, name string) (text []byte, info *devinfo.Info, err error) {
	text, err = dir.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, failure.New(failure.Code(err), err, "remove the file or directory at this path")
	}
	info, err = dir.Parse(name, text)
	if errors.As(err, new(*store.CorruptError)) {
		c.Log.Warn("ignoring the device-info file", "error", err)
		return text, nil, nil
	}
	if err == nil && info.Type != "" && !slices.Contains(knownTypes, info.Type) {
		c.Log.Warn("ignoring the device-info file, whose type is unknown", "file", dir.Path(name), "type", info.Type)
		return text, nil, nil
	}
	return text, info, err
}

// Facts returns the facts that ADD keeps if no better source has them. They are the external facts, merged with
// devinfo's own if these are about the device that is found now, or else declared.
func (f *InfoFile) Facts(device *discovery.Device, declared *devinfo.Info) *devinfo.Info {
	if f.Own == nil || !sameDevice(f.Own, cmp.Or(device.Info, declared)) {
		return f.External
	}
	facts := devinfo.Merge(f.External, f.Own, nil)
	if f.External == nil {
		facts.Version = f.Own.Version // Merge would raise it, although this ADD repeats the former one
	}
	return facts
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

// WriteInfo writes info to the device-info file. If info is nil it restores the content from before devinfo wrote.
func (a *Addition) WriteInfo(info *devinfo.Info) error {
	switch f := &a.File; {
	case f.Name == "", info == nil && f.Own == nil, info != nil && SameInfo(f.Text, info):
		return nil
	case info == nil:
		return setContent(a.Infos, f.Name, f.Original)
	default:
		if err := a.Infos.Make(); err != nil { // Multus creates a missing directory with mode 000
			return err
		}
		return a.Infos.Write(f.Name, info.Encode())
	}
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

// SameInfo reports whether all readers of a file, nil if it is missing, read info from it. A file with a key in another letter
// case differs, because Validate refuses such a key, and so does one with "punt", because only Parse reads it as
// "inject-punt".
func SameInfo(file []byte, info *devinfo.Info) bool {
	if file == nil {
		return false
	}
	now, err := devinfo.Parse(file)
	if err != nil || now.Validate().Err() != nil || bytes.Contains(file, []byte(`"punt"`)) {
		return false
	}
	return bytes.Equal(compact(now), compact(info))
}

// compact encodes device information as the journal stores it.
func compact(info *devinfo.Info) []byte {
	var b bytes.Buffer
	_ = json.Compact(&b, info.Encode()) // Encode returns valid JSON
	return b.Bytes()
}
