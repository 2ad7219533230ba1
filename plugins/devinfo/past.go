package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
)

// Past is what was there before this ADD, decided once. What delegates write makes
// another one.
type past struct {
	entry  *journal.Entry // of an earlier ADD of this boot, which is repeated; nil = none
	file   []byte         // what the device-info file holds; nil = no file
	before []byte         // what it held before we ever wrote it; nil = there was none
	source *devinfo.Info  // what others say there, or in the device plugin's file in its place
	own    *devinfo.Info  // what we say there: no source, but kept where the kernel is silent
	spec   []byte         // our CDI spec; nil = none
}

// past reads what is there, and cleans up after an ADD that was killed, or that a reboot
// swept away. It refuses what belongs to another attachment.
func (r *request) past() (p past, err error) {
	if p.entry, err = r.earlier(); err != nil {
		return past{}, err
	}
	if err := r.readFile(&p); err != nil {
		return past{}, err
	}
	if p.spec, err = r.readSpec(); err != nil {
		return past{}, err
	}
	return p, r.checkMode(p)
}

// earlier gives the entry of an ADD that this one repeats.
func (r *request) earlier() (*journal.Entry, error) {
	e, _, err := r.entry()
	switch {
	case err != nil || e == nil:
		return nil, err
	case !e.OfBoot(r.BootID):
		r.log.Warn("cleaning up after an attachment of an older boot", "since", e.Time)
		gone := *e
		gone.Netns = "" // what is at its path now is another's
		err = r.undo(&gone, r.dropOlder)
	case len(e.Delegates) == 0:
		return e, nil
	case e.Complete:
		return nil, fail(codeConfig, fmt.Errorf("attachment %s exists, since %s", r.key, e.Time.Format("2006-01-02 15:04:05 MST")),
			"DEL first: to add it again would tear down what its delegates made")
	default:
		r.log.Warn("cleaning up after an ADD that was cut short", "since", e.Time)
		err = r.undo(e, r.putBack)
	}
	if err != nil {
		return nil, fmt.Errorf("clean up after an earlier ADD: %w", err)
	}
	return nil, nil
}

// dropOlder removes a device-info file of an older boot, unless this boot's runtime has put
// another one in its place: it does so for the ADD at hand.
func (r *request) dropOlder(e *journal.Entry, n journal.Names) error {
	if n.File == r.name {
		if _, info, err := r.parsed(store.Open(n.Dir), n.File); err != nil || info != nil && !wrote(e, n.File, info) {
			return err
		}
	}
	return r.removeFile(n)
}

// putBack makes the device-info file of an ADD that was cut short what it was before. What
// somebody else has written since, a delegate or the runtime, is a source for this one.
func (r *request) putBack(e *journal.Entry, n journal.Names) error {
	if n.File != e.File || n.Dir != e.Dir {
		return r.removeFile(n)
	}
	dir := store.Open(n.Dir)
	if _, info, err := r.parsed(dir, n.File); err != nil || info != nil && !wrote(e, n.File, info) {
		return err
	}
	return restore(dir, n.File, e.Created, e.Before)
}

// restore makes a file hold what it held before, or removes it where there was none.
func restore(dir *store.Dir, name string, created bool, before []byte) error {
	if created {
		return dir.Remove(name)
	}
	if now, err := dir.Read(name); err == nil && bytes.Equal(now, before) {
		return nil
	}
	return dir.Write(name, before)
}

// wrote says whether what a device-info file says is what an ADD of the entry's attachment
// wrote there. Of an entry of format 1 the device alone is known.
func wrote(e *journal.Entry, file string, info *devinfo.Info) bool {
	if info == nil {
		return false
	}
	if file == e.File && e.Wrote && e.Info == nil {
		return string(info.Type) == e.Device.Type && discovery.Identity(info) == e.Device.ID
	}
	said := []string{}
	if file == e.File {
		said = append(said, string(e.Was))
	}
	for _, n := range e.All() {
		if n.File == file {
			said = append(said, n.Info)
		}
	}
	var now bytes.Buffer
	err := json.Compact(&now, info.Encode())
	return err == nil && slices.ContainsFunc(said, func(text string) bool {
		var then bytes.Buffer
		return json.Compact(&then, []byte(text)) == nil && bytes.Equal(now.Bytes(), then.Bytes())
	})
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
	var info *devinfo.Info
	if p.file, info, err = r.parsed(r.Infos, r.name); err != nil {
		return err
	}
	p.before, p.source = p.file, info
	if e := p.entry; e != nil && wrote(e, r.name, info) {
		p.own, p.before, p.source = info, nil, nil
		if e.File == r.name && !e.Created {
			p.before = append([]byte{}, e.Before...) // of an empty file too not nil
			if p.source, err = r.reparsed(e.Before); err != nil {
				return err
			}
		}
	}
	if p.source == nil {
		p.source, err = r.devicePlugins()
	}
	return err
}

// reparsed parses what the file held before an earlier ADD, which has warned of it if it
// makes no sense.
func (r *request) reparsed(before []byte) (*devinfo.Info, error) {
	info, err := r.Infos.Parse(r.name, before)
	if as[*store.CorruptError](err) {
		return nil, nil
	}
	return info, err
}

// refuseAnothers refuses a device-info file that another attachment has recorded, or that
// is named after another container.
func (r *request) refuseAnothers() error {
	owner, owned, err := r.Journal.Owner(r.name)
	if err == nil && !owned && r.foreign(r.name) {
		if _, err := r.Infos.Read(r.name); notThere(err) {
			return nil
		}
		if owner, owned, err = r.Journal.Owner(r.name); err == nil && !owned { // still: claims come before files
			err = fmt.Errorf("device-info file %s: is there, and named after another container", r.att.Path)
			return fail(codeConfig, err, ownPath)
		}
	}
	if err != nil || !owned || owner == r.key {
		return err
	}
	return fail(codeConfig, &journal.OwnedError{What: "device-info file", File: r.att.Path, Owner: owner}, ownPath)
}

const ownPath = "runtimeConfig.CNIDeviceInfoFile must be a path of this attachment's own"

// foreign says whether a device-info file has the name that Multus gives to one of another
// container, <network>-<containerID>_<ifName>. Networks and IDs may hold hyphens and
// interfaces underscores, so only the end can tell.
func (c *call) foreign(name string) bool {
	if before, after, ok := cutLast(name, "-"+c.key.ContainerID+"_"); ok && before != "" && after != "" {
		return false
	}
	before, ifName, _ := cutLast(name, "_")
	_, id, ok := cutLast(before, "-")
	return ok && id != "" && ifName != "" && len(ifName) < 16 // IFNAMSIZ
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if n := strings.LastIndex(s, sep); n >= 0 {
		return s[:n], s[n+len(sep):], true
	}
	return s, "", false
}

// devicePlugins reads the file that the device plugin wrote for the device (section 4.1);
// nil if there is none, or nothing names it.
func (r *request) devicePlugins() (*devinfo.Info, error) {
	if r.cfg.ResourceName == "" || r.cfg.DeviceID == "" {
		return nil, nil
	}
	name := strings.ReplaceAll(r.cfg.ResourceName+"-"+r.cfg.DeviceID+"-device.json", "/", "-")
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
	declared := r.declared != nil && r.declared.Type != ""
	if len(r.children) > 0 || r.prev != nil || r.cfg.DeviceID != "" || declared || p.source != nil {
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
