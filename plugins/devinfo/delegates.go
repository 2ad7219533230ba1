package devinfo

import (
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/result"
)

// runDelegates runs the delegates. Before that it records the attachment, takes leases of the devices that the delegates
// will take, and writes the facts known so far to the device-info file for them. Then the request has their last result and
// what they left of the file, so that ADD goes on as for a network whose prevResult is that result.
func (r *request) runDelegates(done *undo) error {
	_, known, err := r.find("") // returns an error for a conflict before anything is changed
	if err != nil {
		return err
	}
	if r.file.name == "" || known.Validate().Err() != nil { // also if there is none
		known = nil
	}
	p := plan{info: known, entry: r.newEntry(known)}
	e := p.entry
	e.Delegates, e.CapabilityArgs, e.PrevResult = r.c.Config.DelegateConfigs(), r.c.capabilityArgs(), r.c.Config.PrevResult
	if e.Leases, err = r.c.AskedLeases(e); err != nil {
		return err
	}
	if err := r.commit(p, done); err != nil {
		return err
	}
	r.last = e
	if r.result, err = r.addDelegates(done); err != nil {
		return err
	}
	r.file.own = known
	r.file, err = r.c.reread(r.file)
	return err
}

// addDelegates runs ADD of the delegates, whose inverse is the DEL of those that it has started. They may write the
// device-info file, too.
func (r *request) addDelegates(done *undo) (*result.Result, error) {
	e := r.last
	n, err := r.c.Network(e, e.Delegates, e.Netns)
	if err != nil {
		return nil, err
	}
	done.push(r.restoring())
	done.push(func() error {
		ended := r.c.Removal(done.entry)
		ended.Delegates, ended.Result = e.Delegates[:n.Started], n.Result
		return ended.DelDelegates()
	})
	n.Before = r.c.interrupted
	output, err := n.Add(e.PrevResult)
	if err != nil {
		return nil, failure.OfDelegate("ADD", err)
	}
	res, err := result.Parse(output, r.c.Config.CNIVersion)
	if err != nil {
		return nil, failure.New(failure.Decoding, err, "the last delegate printed this result; report it to its authors")
	}
	return res, r.c.interrupted()
}
