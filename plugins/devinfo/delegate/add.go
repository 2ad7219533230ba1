package delegate

import (
	"bytes"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/result"
	plugin "devinfo-cni.io/plugins/devinfo"
)

// run runs the delegates. Before that it records the attachment, takes leases of the devices that the delegates will
// take, and writes the facts known so far to the device-info file for them. It replaces the result by the last
// delegate's, and reads the file again.
func (d *Delegates) run(a *plugin.Addition) error {
	go d.listen()              // runs in parallel, and the call before the first delegate waits for it
	known, err := knownInfo(a) // returns an error for a conflict before anything is changed
	if err != nil {
		return err
	}
	e := a.NewEntry(known)
	e.Delegates, e.CapabilityArgs, e.PrevResult = a.Config.DelegateConfigs(), capabilityArgs(a.Call), a.Config.PrevResult
	if e.Leases, err = a.AskedLeases(e); err != nil {
		return err
	}
	if err := a.Record(e); err != nil {
		return err
	}
	if err := a.WriteInfo(known); err != nil {
		return err
	}
	if err := d.runAll(a, e); err != nil {
		return err
	}
	if err := reread(a, known); err != nil {
		return err
	}
	return a.CheckType(a.File.External)
}

// knownInfo returns the device information known before the delegates run, or nil if it is incomplete or has no file.
func knownInfo(a *plugin.Addition) (*devinfo.Info, error) {
	target := a.Target(a.Declared, a.File.External, a.Result)
	target.Netns = ""
	device, err := a.Finder.Find(target)
	if err != nil || a.File.Name == "" {
		return nil, err
	}
	info := devinfo.Merge(a.File.Facts(device, a.Declared), device.Info, a.Declared)
	if info == nil || info.Validate().Err() != nil {
		return nil, nil
	}
	return info, nil
}

// runAll runs ADD of the entry's delegates.
func (d *Delegates) runAll(a *plugin.Addition, e *journal.Entry) error {
	n, err := a.Network(e, e.Delegates, e.Netns)
	if err != nil {
		return err
	}
	d.listen()
	var unread error
	n.Before = d.interrupted
	n.After = func(delegate string, text []byte) {
		var res *result.Result
		if res, unread = result.Parse(text, a.Config.CNIVersion); unread != nil {
			return
		}
		a.Result, a.Output = res, text
	}
	a.Output = e.PrevResult
	_, err = n.Add(e.PrevResult)
	a.Ran = e.Delegates[:n.Started]
	if err != nil {
		return failure.OfDelegate("ADD", err)
	}
	if unread != nil {
		return failure.New(failure.Decoding, unread, "the last delegate printed this result; report it to its authors")
	}
	return d.interrupted()
}

// reread reads the device-info file after the delegates. If it differs from written, devinfo's content, a delegate has
// written it.
func reread(a *plugin.Addition, written *devinfo.Info) error {
	f := &a.File
	f.Own = written
	if f.Name == "" {
		return nil
	}
	text, now, err := a.ReadInfo(a.Infos, f.Name)
	f.Text = text
	if now != nil && (written == nil || !bytes.Equal(now.Encode(), written.Encode())) {
		f.External, f.Own, f.Original = now, nil, text
	}
	return err
}
