package plugin

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/attachment"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
)

// earlier is what an ADD finds of its attachment: what was on disk before it, and then what its
// delegates have left there.
type earlier struct {
	text     []byte        // the content of the device-info file; nil = no file
	original []byte        // the content that a failed ADD restores; nil = none: there was no file, or a former ADD wrote it
	others   *devinfo.Info // what other programs wrote to the file; else the device plugin's file
	own      *devinfo.Info // what devinfo wrote to the file, in a former ADD or for the delegates
	spec     []byte        // the attachment's CDI spec; nil = none
}

// readEarlier reads what is on disk, takes over a former ADD, and refuses what belongs to another
// attachment.
func (r *request) readEarlier(undo *rollback) (e earlier, err error) {
	own, err := r.takeOver(undo)
	if err != nil {
		return earlier{}, err
	}
	if err := r.readFile(&e, own); err != nil {
		return earlier{}, err
	}
	if e.spec, err = r.readSpec(); err != nil {
		return earlier{}, err
	}
	return e, r.checkMode(e)
}

// readFile reads the device-info file. The device plugin's takes its place if it is missing, because
// the runtime should have copied that.
func (r *request) readFile(e *earlier, own *devinfo.Info) (err error) {
	if r.name == "" {
		return nil
	}
	if err := r.refuseAnothers(); err != nil {
		return err
	}
	if e.text, e.others, err = r.parsed(r.Infos, r.name); err != nil {
		return err
	}
	if own != nil && (e.text == nil || says(e.text, own)) {
		e.own, e.others = own, nil
	} else {
		e.original = e.text
	}
	if e.others == nil {
		e.others, err = r.devicePlugins()
	}
	return err
}

// reread is the state after the delegates, for which devinfo had written own. If a delegate wrote
// something else to the file, that is the others' now.
func (r *request) reread(e earlier, own *devinfo.Info) (earlier, error) {
	e.own = own
	if r.name == "" {
		return e, nil
	}
	text, now, err := r.parsed(r.Infos, r.name)
	if err != nil {
		return earlier{}, err
	}
	e.text = text
	if now != nil && (own == nil || !bytes.Equal(now.Encode(), own.Encode())) {
		e.others, e.own = now, nil
	}
	return e, r.checkTypes(e.others)
}

// facts are those that the file gives where the kernel has none: what others wrote and, if it is of
// the same device, what devinfo wrote.
func (e earlier) facts(device *discovery.Device, declared *devinfo.Info) *devinfo.Info {
	if e.own == nil || !e.ownIsOf(cmp.Or(device.Info, declared)) {
		return e.others
	}
	return devinfo.Merge(e.others, e.own, nil)
}

// ownIsOf reports whether devinfo wrote the file about the device of info. A socket may have its path
// from the file alone.
func (e earlier) ownIsOf(info *devinfo.Info) bool {
	if info == nil || info.Type != e.own.Type {
		return false
	}
	id := discovery.Identity(info)
	return id == discovery.Identity(e.own) || id == "" && isSocket(info)
}

func isSocket(info *devinfo.Info) bool {
	return info.Type == devinfo.TypeVhostUser || info.Type == devinfo.TypeMemif
}

// isOthers reports whether another program's file already says the same, and stays.
func (e earlier) isOthers(info *devinfo.Info) bool {
	if e.own != nil {
		return says(e.original, info)
	}
	return says(e.text, info)
}

// takeOver handles a former ADD of this attachment that had no DEL. It keeps a live one without
// delegates until this ADD is recorded, which replaces it (see [request.record]), and undoes one
// that was killed during its delegates, is of another boot, or has lost its namespace. It refuses
// one whose delegates have made a pod's network. It returns what the former ADD wrote to the
// device-info file; nil = nothing that is still there.
func (r *request) takeOver(undo *rollback) (own *devinfo.Info, err error) {
	e, corrupt, err := r.lock()
	if err != nil || e == nil {
		return nil, err
	}
	undo.former = e
	former := *e
	switch {
	case corrupt: // its delegates are not known
	case !e.OfBoot(r.BootID):
		r.log.Warn("cleaning up after an attachment of an older boot", "since", e.Time)
		former.Netns = "" // what is at its path now is another's
	case r.dead(r.key, e):
		r.log.Warn("cleaning up after an attachment whose network namespace is gone", "since", e.Time)
		former.Netns = ""
	case len(e.Delegates) == 0:
		return r.written(e)
	case e.Complete:
		remedy := "DEL first: to add it again would tear down what its delegates made"
		if len(r.children) == 0 || r.cfg.PrevResult != nil && e.PrevResult == nil {
			remedy = "devinfo stands twice in this chain: name it once"
		}
		return nil, fail(codeConfig, fmt.Errorf("attachment %s exists, since %s", r.key, e.Time.Format("2006-01-02 15:04:05 MST")), remedy)
	default:
		r.log.Warn("cleaning up after an ADD that was cut short", "since", e.Time)
		if own, err = r.written(e); err != nil {
			return nil, err
		}
	}
	if err := r.undo(&former, r.removeWritten); err != nil {
		return nil, fmt.Errorf("clean up after an earlier ADD: %w", err)
	}
	e.Unlock()
	undo.former = nil
	return own, nil
}

// written returns what the device-info file holds if a former ADD has written it. It returns nil if
// the file is another one, or if somebody else, a delegate or the runtime, has written it since:
// then it is a source for this ADD.
func (r *request) written(e *journal.Entry) (*devinfo.Info, error) {
	if e.File == "" || e.File != r.name || e.Kept {
		return nil, nil
	}
	_, info, err := r.parsed(store.Open(e.Dir), e.File)
	if info == nil || !says(e.Info, info) {
		return nil, err
	}
	return info, nil
}

// removeWritten removes the device-info file of a former ADD, unless it is a source for this one.
func (r *request) removeWritten(e *journal.Entry) error {
	if e.File == r.name {
		if _, info, err := r.parsed(store.Open(e.Dir), e.File); err != nil || info != nil && (e.Kept || !says(e.Info, info)) {
			return err
		}
	}
	return r.removeFile(e)
}

// refuseAnothers refuses a device-info file that another attachment has recorded, or that
// is named after another container.
func (r *request) refuseAnothers() error {
	owner, err := r.Journal.Owner(journal.OfFile, r.name)
	switch {
	case err != nil || owner != nil && *owner == r.key:
		return err
	case owner != nil:
		err = fmt.Errorf("device-info file %s: belongs to attachment %s", r.att.Path, owner)
	case r.foreign(r.name):
		err = fmt.Errorf("device-info file %s: is named after another container", r.att.Path)
	default:
		return nil
	}
	return fail(codeConfig, err, "runtimeConfig.CNIDeviceInfoFile must be a path of this attachment's own")
}

// foreign says whether a device-info file is named after another container.
func (c *call) foreign(name string) bool { return attachment.OfAnother(name, c.key.ContainerID) }

// devicePlugins reads the file that the device plugin wrote for the device (section 4.1);
// nil if there is none, or nothing names it.
func (r *request) devicePlugins() (*devinfo.Info, error) {
	if r.cfg.ResourceName == "" || r.cfg.DeviceID == "" {
		return nil, nil
	}
	name := devinfo.DevicePluginFile(r.cfg.ResourceName, r.cfg.DeviceID)
	_, info, err := r.parsed(r.Pool, name)
	if as[*store.NameError](err) {
		return nil, &config.Problem{Key: "resourceName", Value: fmt.Sprintf("%q", r.cfg.ResourceName), Want: "a resource such as vendor.example/name: " + err.Error()}
	}
	return info, err
}

// parsed returns the content of a device-info file, and what it says. Both are nil if the
// file is missing, the latter also if it is invalid, with a warning.
func (c *call) parsed(dir *store.Dir, name string) ([]byte, *devinfo.Info, error) {
	data, err := dir.Read(name)
	if notThere(err) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, fail(codeOf(err), err, "remove what is in the place of the device-info file")
	}
	info, err := dir.Parse(name, data)
	if as[*store.CorruptError](err) {
		c.log.Warn("device-info file taken as absent", "error", err)
		return data, nil, nil
	}
	return data, info, err
}

// checkMode refuses a configuration that asks for nothing.
func (r *request) checkMode(e earlier) error {
	if e.others != nil || !attachment.Idle(r.cfg, r.declared) {
		return r.checkTypes(e.others)
	}
	return fail(codeConfig, errors.New("the configuration gives devinfo nothing to do"),
		`chain it after the plugin that makes the interface (then there is a prevResult), or name child plugins ("delegates": [{"type": …}]), `+
			`or name the device ("deviceID": "0000:01:00.2", or "deviceInfo": {"type": …})`)
}

// checkTypes refuses a declared type that is not the file's: neither is ever
// changed.
func (r *request) checkTypes(file *devinfo.Info) error {
	if r.declared == nil || file == nil || r.declared.Type == "" || file.Type == "" || r.declared.Type == file.Type {
		return nil
	}
	return fail(codeMismatch, fmt.Errorf("deviceInfo declares type %q, but the device-info file %s has type %q", r.declared.Type, r.att.Path, file.Type),
		"correct deviceInfo, or the device plugin that wrote the file")
}

func notThere(err error) bool { return errors.Is(err, fs.ErrNotExist) }
