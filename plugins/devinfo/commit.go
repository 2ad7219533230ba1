package plugin

import (
	"bytes"
	"encoding/json"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
)

// commit records what was found, takes the leases of it, and then writes the files.
func (r *request) commit(back *wayBack, past past, ran ran, found found) error {
	e := r.newEntry(ran.result)
	if back.entry != nil {
		e.Leases = add(e.Leases, back.entry.Leases...)
	}
	e.Leases = add(e.Leases, found.leases...)
	e.Result, e.Complete, e.InNetns = ran.raw, true, found.device.InNetns
	if found.device.Led {
		e.Interface = found.device.Interface
	}
	if found.info != nil {
		e.Wrote = r.name != ""
		e.Device = journal.Identity{Type: string(found.info.Type), ID: discovery.Identity(found.info)}
	}
	if e.Wrote {
		others := past.file
		if past.early != nil { // what is there now is ours
			others = back.before
		}
		e.Info, e.Kept = found.info.Encode(), says(others, found.info)
	}
	if e.SocketDir = found.given.SocketDir; found.spec == nil {
		e.CDI, e.SocketDir = journal.CDI{}, ""
	}
	if r.name == "" && len(e.Delegates) == 0 && found.spec == nil && len(e.Leases) == 0 {
		if r.former == nil {
			return nil
		}
		return r.undo(r.former, r.removeFile)
	}
	if err := r.record(back, e); err != nil {
		return err
	}
	if err := r.writeFile(back, past, found.info); err != nil {
		return err
	}
	if found.spec == nil || bytes.Equal(found.spec, past.spec) { // container runtimes read all specs anew when one changes
		return nil
	}
	return r.Specs.Write(r.spec.File, found.spec)
}

// writeFile writes the device-info file, unless it says the same already. What was written
// for the delegates, of a device that is not found any more, is taken back.
func (r *request) writeFile(back *wayBack, past past, info *devinfo.Info) error {
	switch {
	case r.name == "" || info == nil && past.early == nil || info != nil && says(past.file, info):
		return nil
	case info == nil:
		return r.restore(back.before)
	}
	return r.Infos.Write(r.name, info.Encode())
}

// restore makes the device-info file hold what it held before; nil = there was none.
func (r *request) restore(before []byte) error {
	if before == nil {
		return r.Infos.Remove(r.name)
	}
	if now, err := r.Infos.Read(r.name); err == nil && bytes.Equal(now, before) {
		return nil
	}
	return r.Infos.Write(r.name, before)
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
