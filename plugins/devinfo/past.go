package plugin

import (
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/attachment"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
)

// Past is what was there before this ADD, decided once. What delegates write makes
// another one.
type past struct {
	file   []byte        // what the device-info file holds; nil = no file
	source *devinfo.Info // what others say there, or in the device plugin's file in its place
	early  *devinfo.Info // what we wrote there, in a former ADD or for the delegates: no source, but kept where the kernel is silent
	spec   []byte        // our CDI spec; nil = none
}

// past reads what is there, and refuses what belongs to another attachment.
func (r *request) past() (p past, err error) {
	if err := r.readFile(&p); err != nil {
		return past{}, err
	}
	if p.spec, err = r.readSpec(); err != nil {
		return past{}, err
	}
	return p, r.checkMode(p)
}

// takeOver sees to a former ADD of this attachment that had no DEL. A live one without delegates is
// kept until this ADD is recorded, which replaces it: see [request.record]. One that was killed
// amid its delegates, is of another boot, or has lost its namespace is undone now. One whose
// delegates have made a pod's network is refused.
func (r *request) takeOver() error {
	e, corrupt, err := r.lock()
	if err != nil || e == nil {
		return err
	}
	defer func() {
		if r.former == nil {
			e.Unlock()
		}
	}()
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
		r.former = e
		r.ours, err = r.written(e)
		return err
	case e.Complete:
		remedy := "DEL first: to add it again would tear down what its delegates made"
		if len(r.children) == 0 || r.cfg.PrevResult != nil && e.PrevResult == nil {
			remedy = "devinfo stands twice in this chain: name it once"
		}
		return fail(codeConfig, fmt.Errorf("attachment %s exists, since %s", r.key, e.Time.Format("2006-01-02 15:04:05 MST")), remedy)
	default:
		r.log.Warn("cleaning up after an ADD that was cut short", "since", e.Time)
		if r.ours, err = r.written(e); err != nil {
			return err
		}
	}
	if err := r.undo(&former, r.removeWritten); err != nil {
		return fmt.Errorf("clean up after an earlier ADD: %w", err)
	}
	return nil
}

// written is what the device-info file holds if a former ADD has written it; nil if it is another
// one, or somebody else has written it, a delegate or the runtime: then it is a source for this ADD.
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

// giveUp removes what a former ADD has made and this one does not make again.
func (r *request) giveUp(former, e *journal.Entry) error {
	var err error
	if former.CDI != e.CDI {
		err = r.removeSpec(former.CDI)
	}
	if former.File != "" && former.Path() != e.Path() {
		err = followedBy(nil, err, r.removeFile(former))
	}
	return err
}

// readFile reads the device-info file, else the device plugin's in its place, which the
// runtime should have copied there.
func (r *request) readFile(p *past) (err error) {
	if r.name == "" {
		return nil
	}
	if err := r.refuseAnothers(); err != nil {
		return err
	}
	if p.file, p.source, err = r.parsed(r.Infos, r.name); err != nil {
		return err
	}
	if r.ours != nil && (p.file == nil || says(p.file, r.ours)) {
		p.early, p.source = r.ours, nil
	}
	if p.source == nil {
		p.source, err = r.devicePlugins()
	}
	return err
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
func (r *request) checkMode(p past) error {
	if p.source != nil || !attachment.Idle(r.cfg, r.declared) {
		return r.checkTypes(p.source)
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
