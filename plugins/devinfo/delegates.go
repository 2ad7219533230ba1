package devinfo

import (
	"bytes"
	"encoding/json"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/result"
)

// runDelegates runs the delegates. Before that it records the attachment, takes leases of the devices that the delegates
// will take, and writes the facts known so far to the device-info file for them. It returns the request with their last
// result and what they left of the file, so that ADD goes on as for a network whose prevResult is that result.
func (r request) runDelegates(done *undo) (request, error) {
	known, err := r.knownInfo() // returns an error for a conflict before anything is changed
	if err != nil {
		return r, err
	}
	p := plan{info: known, entry: r.newEntry(known)}
	e := p.entry
	e.Delegates, e.CapabilityArgs, e.PrevResult = r.c.Config.DelegateConfigs(), r.c.capabilityArgs(), r.c.Config.PrevResult
	if e.Leases, err = r.c.cleaner().AskedLeases(e); err != nil {
		return r, err
	}
	if err := r.commit(p, done); err != nil {
		return r, err
	}
	r.last = e
	if r.result, r.output, err = r.addDelegates(done); err != nil {
		return r, err
	}
	if r.file, err = r.reread(known); err != nil {
		return r, err
	}
	return r, r.checkType()
}

// knownInfo returns the device information known before the delegates run, or nil if it is incomplete or has no file.
func (r request) knownInfo() (*devinfo.Info, error) {
	target := r.c.target(r.declared, r.file.external, r.result)
	target.Netns = ""
	device, err := r.c.Finder.Find(target)
	if err != nil || r.file.name == "" {
		return nil, err
	}
	info := devinfo.Merge(r.file.facts(device, r.declared), device.Info, r.declared)
	if info == nil || info.Validate().Err() != nil {
		return nil, nil
	}
	return info, nil
}

// addDelegates runs ADD of the delegates, whose inverse is the DEL of those that it has started. They may write the
// device-info file, too.
func (r request) addDelegates(done *undo) (*result.Result, json.RawMessage, error) {
	e := r.last
	n, err := r.c.cleaner().Network(e, e.Delegates, e.Netns)
	if err != nil {
		return nil, nil, err
	}
	done.push(r.restoreInfo)
	done.push(func() error {
		ended := r.c.cleaner().Removal(done.entry)
		ended.Delegates, ended.Result = e.Delegates[:n.Started], n.Result
		return ended.DelDelegates()
	})
	n.Before = r.c.signals.interrupted
	output, err := n.Add(e.PrevResult)
	if err != nil {
		return nil, nil, failure.OfDelegate("ADD", err)
	}
	res, err := result.Parse(output, r.c.Config.CNIVersion)
	if err != nil {
		return nil, nil, failure.New(failure.Decoding, err, "the last delegate printed this result; report it to its authors")
	}
	return res, output, r.c.signals.interrupted()
}

// reread reads the device-info file after the delegates. If it differs from written, devinfo's content, a delegate has
// written it.
func (r request) reread(written *devinfo.Info) (infoFile, error) {
	f := r.file
	f.own = written
	if f.name == "" {
		return f, nil
	}
	text, now, err := r.c.readInfo(r.c.Infos, f.name)
	f.text = text
	if now != nil && (written == nil || !bytes.Equal(now.Encode(), written.Encode())) {
		f.external, f.own, f.original = now, nil, text
	}
	return f, err
}
