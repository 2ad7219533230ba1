package plugin

import (
	"bytes"
	"encoding/json"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
)

// commit records what was found, takes the leases of it, and then writes the files.
func (r *request) commit(undo *rollback, now earlier, ran delegated, found found) error {
	e := r.newEntry(ran.result)
	if undo.entry != nil {
		e.Leases = mergeLeases(e.Leases, undo.entry.Leases...)
	}
	e.Leases = mergeLeases(e.Leases, found.leases...)
	e.Result, e.Complete, e.InNetns = ran.raw, true, found.device.InNetns
	if found.device.Led {
		e.Interface = found.device.Interface
	}
	if found.info != nil {
		e.Wrote = r.name != ""
		e.Device = journal.Identity{Type: string(found.info.Type), ID: discovery.Identity(found.info)}
	}
	if e.Wrote {
		e.Info, e.Kept = found.info.Encode(), now.isOthers(found.info)
	}
	if e.SocketDir = found.granted.SocketDir; found.spec == nil {
		e.CDI, e.SocketDir = journal.CDI{}, ""
	}
	if r.name == "" && len(e.Delegates) == 0 && found.spec == nil && len(e.Leases) == 0 {
		if undo.former == nil {
			return nil
		}
		return r.undo(undo.former, r.removeFile)
	}
	if err := r.record(undo, e); err != nil {
		return err
	}
	if err := r.writeFile(now, found.info); err != nil {
		return err
	}
	if found.spec == nil || bytes.Equal(found.spec, now.spec) { // container runtimes read all specs again when one changes
		return nil
	}
	return r.Specs.Write(r.cdiFile.File, found.spec)
}

// writeFile writes the device-info file, unless it says the same already. If there is nothing to
// write, it takes back what devinfo wrote.
func (r *request) writeFile(now earlier, info *devinfo.Info) error {
	switch {
	case r.name == "" || info == nil && now.own == nil || info != nil && says(now.text, info):
		return nil
	case info == nil:
		return r.restore(now.original)
	}
	return r.Infos.Write(r.name, info.Encode())
}

// restore gives the device-info file its former content; nil = there was no file.
func (r *request) restore(original []byte) error {
	if original == nil {
		return r.Infos.Remove(r.name)
	}
	if now, err := r.Infos.Read(r.name); err == nil && bytes.Equal(now, original) {
		return nil
	}
	return r.Infos.Write(r.name, original)
}

// says reports whether a file already says the same, to all readers: what another program wrote
// stays. A valid one has no key in another letter case, which is not encoded.
func says(file []byte, info *devinfo.Info) bool {
	now, err := devinfo.Parse(file)
	return err == nil && bytes.Equal(compact(now), compact(info)) && now.Validate().Err() == nil &&
		!bytes.Contains(file, []byte(`"punt"`)) // which reads as inject-punt
}

// compact is device information as the journal keeps it.
func compact(info *devinfo.Info) []byte {
	var b bytes.Buffer
	_ = json.Compact(&b, info.Encode()) // it is JSON
	return b.Bytes()
}
