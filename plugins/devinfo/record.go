package plugin

import (
	"bytes"
	"reflect"
	"slices"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
)

// record journals what was found and writes the files. With delegates the entry is
// complete only after that: until then a killed ADD is cleaned up after.
func (a *adding) record() error {
	delegating := len(a.entry.Delegates) > 0
	if a.name == "" && !delegating && a.cdi.spec == nil {
		return nil
	}
	a.entry.Wrote = a.name != "" && a.info != nil
	a.entry.InNetns = a.device.InNetns
	a.entry.Complete = !delegating
	if a.info != nil {
		a.entry.Device = journal.Device{Type: string(a.info.Type), ID: discovery.Identity(a.info)}
	}
	if a.cdi.spec == nil {
		a.entry.CDI = journal.CDI{}
	}
	err := a.put()
	if err != nil {
		return err
	}
	switch {
	case a.entry.Wrote:
		err = a.write(a.info)
	case a.known != nil: // of a device that is not found any more
		a.wrote, err = true, a.restore(a.entry.Created, a.entry.Before)
	}
	if err == nil {
		err = a.writeSpec()
	}
	if err != nil || !delegating {
		return err
	}
	a.entry.Complete = true
	return a.put()
}

// removeFormer removes the files that an earlier ADD of this attachment wrote, where
// this one was given others.
func (a *adding) removeFormer() {
	e := a.previous
	if e == nil {
		return
	}
	a.removeFormerSpec(e.CDI)
	if !e.Wrote || e.File == a.name || e.BootID != a.BootID {
		return
	}
	if name, err := a.Infos.Name(e.Path()); err != nil {
		a.log.Warn("left alone", "error", err)
	} else if _, owned, err := a.Journal.Owner(name); err == nil && !owned {
		if err := a.Infos.Remove(name); err != nil {
			a.log.Warn("left behind", "error", err)
		}
	}
}

func (a *adding) put() error {
	a.entry.Time = a.Now().UTC()
	a.journal = true
	err := a.Journal.Put(a.entry)
	if err != nil && !as[*journal.OwnedError](err) && !as[*store.NameError](err) {
		return fail(codeOf(err), err, "the journal is in the node setting stateDir, "+a.Node.StateDir)
	}
	return err
}

// ours reads the device-info file of which an earlier ADD of this attachment was
// the last writer: no source then, but what it says of the same device is kept
// where the kernel is silent now. What was there before that ADD is the source.
func (a *adding) ours() error {
	e := a.previous
	if e == nil || !e.Wrote || e.File != a.name || e.BootID != a.BootID || a.existing == nil ||
		string(a.existing.Type) != e.Device.Type || discovery.Identity(a.existing) != e.Device.ID {
		return nil
	}
	a.known, a.existing = a.existing, nil
	if e.Created {
		return nil
	}
	before, err := a.Infos.Parse(a.name, e.Before)
	if as[*store.CorruptError](err) {
		return nil // the ADD before has warned of it
	}
	a.existing = before
	return err
}

// base is what the file says for what the kernel does not: that of another writer
// and, where it is of the device that was found now, our own.
func (a *adding) base() *devinfo.Info {
	if a.known == nil || a.device.Info == nil || a.known.Type != a.device.Info.Type ||
		discovery.Identity(a.known) != discovery.Identity(a.device.Info) {
		return a.existing
	}
	return devinfo.Merge(a.existing, a.known, nil)
}

// write writes the file, unless it says the same already: what another wrote is
// left as it is.
func (a *adding) write(info *devinfo.Info) error {
	if a.before != nil || a.wrote {
		text, err := a.Infos.Read(a.name)
		now, _ := devinfo.Parse(text)
		if err == nil && reflect.DeepEqual(now, info) && !bytes.Contains(text, []byte(`"punt"`)) { // which reads as inject-punt
			return nil
		}
	}
	a.wrote = true
	return a.Infos.Write(a.name, info.Encode())
}

// restore puts the file back to what it was, or removes it where there was none.
func (a *adding) restore(created bool, before []byte) error {
	if created {
		return a.Infos.Remove(a.name)
	}
	if now, err := a.Infos.Read(a.name); err == nil && bytes.Equal(now, before) {
		return nil
	}
	return a.Infos.Write(a.name, before)
}

// rollBack undoes all that this ADD did, the last thing first.
func (a *adding) rollBack() (errs []error) {
	errs = append(errs, a.restoreSpec())
	if a.started > 0 {
		undo := *a.entry
		undo.Delegates = undo.Delegates[:a.started]
		errs = append(errs, a.cni.del(&undo, runtimeConf(&undo))...)
	}
	if a.name != "" && (a.wrote || a.started > 0) {
		errs = append(errs, a.restore(a.before == nil, a.before))
	}
	switch {
	case !a.journal:
	case a.previous != nil:
		errs = append(errs, a.Journal.Put(a.previous))
	default:
		errs = append(errs, a.Journal.Drop(a.key))
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}
