package dra

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/attachment"
	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/dra/state"
)

// add attaches a sandbox to networks of a claim, all at the same time. That an ADD is
// about to run is on record before, and each result at once.
func (a *Agent) add(c *claim, which []int, sb *sandbox) error {
	refused := func(n int, err error) error { // nothing is run, and no DEL owed
		a.letGoAll(c, which)
		a.metrics.exec("ADD", 0, err)
		return a.notAdded(c, n, sb, err)
	}
	if n, err := a.hold(c, which, sb); err != nil {
		return refused(n, err)
	}
	record := c.record.Clone()
	for _, n := range which {
		at := &record.Attachments[n]
		note, err := a.check(at)
		if err != nil {
			return refused(n, err)
		}
		at.Phase, at.Error = state.Adding, ""
		at.Execution = state.Execution{
			Sandbox: sb.id, Netns: sb.netns, BootID: a.BootID, Args: cniArgs(sb, c.ref.Name),
			InfoFile: filepath.Join(a.DeviceInfoDir, attachment.ClaimFileName(at.Network, sb.id, at.IfName)), Note: note,
		}
	}
	if err := a.put(c, record, "adding"); err != nil {
		a.letGoAll(c, which)
		return a.notAdded(c, which[0], sb, &cniexec.Error{Reason: cniexec.ReasonNode, Err: err})
	}
	results := make(chan result)
	for _, n := range which {
		go func() { results <- a.runAdd(c.ref.UID, n, record.Attachments[n]) }()
	}
	var errs []error
	for range which {
		r := <-results
		if err := a.added(c, r); err != nil {
			errs = append(errs, a.notAdded(c, r.n, sb, err))
		}
	}
	return errors.Join(errs...)
}

// A result is what an attachment has become by an exec.
type result struct {
	n   int // its place in the record
	at  state.Attachment
	err error
}

// runAdd runs ADD and takes in what it gives.
func (a *Agent) runAdd(uid types.UID, n int, at state.Attachment) result {
	began := time.Now()
	err := a.addNetwork(uid, &at)
	a.metrics.exec("ADD", time.Since(began), err)
	return result{n, at, err}
}

func (a *Agent) addNetwork(uid types.UID, at *state.Attachment) (err error) {
	if err := a.node.Bind(at); err != nil {
		return &cniexec.Error{Reason: cniexec.ReasonNode, Err: err}
	}
	at.Result, err = a.cni.add(key(uid, at), at)
	a.did("exec ADD")
	if err != nil {
		return err
	}
	info, err := a.readInfo(at)
	if err == nil && at.Info == nil {
		info, err = a.writeInfo(at)
	}
	if err != nil {
		return &cniexec.Error{Reason: ReasonInfo, Err: err}
	}
	at.Metadata, err = a.describe(at, info)
	return err
}

// added puts the result of an ADD on record, and opens the gate.
func (a *Agent) added(c *claim, r result) error {
	record := c.record.Clone()
	if r.err != nil {
		record.Attachments[r.n].Error = r.err.Error()
		a.adopt(c, record, true) // on disk it is Adding, as it should be
		return r.err
	}
	r.at.Phase = state.Added
	r.at.Ready.Set(metav1.ConditionTrue, time.Now())
	record.Attachments[r.n], record.StatusOwed = r.at, true
	if err := a.put(c, record, "added"); err != nil {
		return err
	}
	a.reports.Add(c.ref.UID)
	return a.open(c, []int{r.n})
}

// notAdded says whose ADD failed. It ends the wait of the sandbox at once, unless the
// network is one that no sandbox waits for.
func (a *Agent) notAdded(c *claim, n int, sb *sandbox, err error) error {
	at := &c.record.Attachments[n]
	err = fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, err)
	a.Log.Error("pod is not attached", "pod", sb.pod, "sandbox", sb.id, "error", err)
	a.tell(sb.pod, NoticeFailed, err.Error())
	a.mu.Lock()
	defer a.mu.Unlock()
	if sb.waited && !at.Late {
		a.giveUp(sb, err)
	}
	if c.blame == "" {
		c.blame = err.Error()
	}
	return err
}

// setBlame notes for the status why what is not attached is not.
func (a *Agent) setBlame(c *claim) {
	a.mu.Lock()
	blame := c.blame
	a.mu.Unlock()
	record := c.record.Clone()
	for n := range record.Attachments {
		at := &record.Attachments[n]
		if at.Phase == state.Added || at.Bare() {
			continue
		}
		if at.Error == "" {
			at.Error = blame
		}
		at.Ready.Set(metav1.ConditionFalse, time.Now())
	}
	record.StatusOwed = true
	a.putAnyway(c, record, "blamed")
	a.mu.Lock()
	if c.blame == blame {
		c.blame = ""
	}
	a.mu.Unlock()
	a.reports.Add(c.ref.UID)
}

// infoOf is where the device-info file is, which the node's settings may have elsewhere by now.
func infoOf(at *state.Attachment) (dir *store.Dir, name string) {
	return store.Open(filepath.Dir(at.InfoFile)), filepath.Base(at.InfoFile)
}

// readInfo reads the device-info file, if a plugin has written one. One that makes no
// sense fails the ADD: the pod would not find its device. One of another major version
// is the pod's to read.
func (a *Agent) readInfo(at *state.Attachment) (*devinfo.Info, error) {
	dir, name := infoOf(at)
	data, err := dir.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("device-info file of network %s: %w", at.Network, err)
	}
	info, err := dir.Parse(name, data)
	switch {
	case errors.As(err, new(*devinfo.VersionError)):
		a.Log.Warn("device-info file not understood", "network", at.Network, "error", err)
		info = nil
	case err != nil:
		return nil, fmt.Errorf("device-info file of network %s: %w: correct the CNI plugin that wrote it", at.Network, err)
	}
	at.Info = data
	return info, nil
}

// describe is what the pod's metadata file says of a device.
func (a *Agent) describe(at *state.Attachment, info *devinfo.Info) (*state.Metadata, error) {
	data, warnings, err := metadata.NetworkData(at.Result, at.IfName, at.Netns)
	if err != nil {
		return nil, &cniexec.Error{Reason: cniexec.ReasonOutput, Err: fmt.Errorf("network %s: %w", at.Network, err)}
	}
	_, more := metadata.Data(at.Result, shown(at)) // as the status will have it
	for _, w := range append(warnings, more...) {
		a.Log.Warn(w, "network", at.Network, "sandbox", at.Sandbox, "ifName", at.IfName)
	}
	return &state.Metadata{NetworkData: data, Attributes: a.node.Attributes(at, info)}, nil
}

// key names the directory of an attachment to a sandbox.
func key(claim types.UID, at *state.Attachment) string {
	return string(claim) + "@" + at.IfName + "@" + at.Sandbox
}

// writeInfo writes the device-info file that no plugin has written. DEL removes it.
func (a *Agent) writeInfo(at *state.Attachment) (*devinfo.Info, error) {
	info := a.node.Describe(at)
	if info == nil {
		return nil, nil
	}
	dir, name := infoOf(at)
	data := info.Encode()
	if err := dir.Write(name, data); err != nil {
		return nil, fmt.Errorf("device-info file of network %s: %w", at.Network, err)
	}
	at.Info = data
	return info, nil
}

// hold takes leases of the devices of attachments. The error says which attachment's is held already:
// Multus has attached the pod before the agent hears of it, or a claim has not given it back.
func (a *Agent) hold(c *claim, which []int, sb *sandbox) (n int, err error) {
	for _, n := range which {
		at := &c.record.Attachments[n]
		if at.Node == nil {
			continue
		}
		err := a.otherClaim(c, at)
		if err == nil {
			err = a.node.Leases.Hold(c.record, at, sb.netns, sb.pod.UID, fmt.Sprintf(": pod %s/%s (%s) cannot have it too: ask for a device once, by a claim or by Multus",
				sb.pod.Namespace, sb.pod.Name, at.IfName))
		}
		if err != nil {
			return n, &cniexec.Error{Reason: cniexec.ReasonNode, Err: err}
		}
	}
	return 0, nil
}

// check says what keeps a network from being added, and else returns the note of its device.
func (a *Agent) check(at *state.Attachment) (devices.Note, error) {
	if err := a.cni.check(at); err != nil {
		return nil, err
	}
	note, err := a.node.Take(at, a.oldNote(at))
	if err != nil {
		return nil, &cniexec.Error{Reason: cniexec.ReasonNode, Err: err}
	}
	return note, nil
}

// oldNote returns the note of a device whose restore was given up, in this boot; nil = none was. The
// scheduler may have allocated the device before it was withheld.
func (a *Agent) oldNote(at *state.Attachment) devices.Note {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.claims {
		for n := range c.record.Abandoned {
			if old := &c.record.Abandoned[n]; old.Note != nil && old.BootID == a.BootID && sameDevice(old, at) {
				return old.Note
			}
		}
	}
	return nil
}

// otherClaim is an error if another claim has not given back the device of an attachment:
// its pod may have been deleted by force, or its DEL, though it was given up, be under way.
func (a *Agent) otherClaim(c *claim, at *state.Attachment) error {
	if at.Node.Shared() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, other := range a.claims {
		has := func(held state.Attachment) bool { return held.Owes() && sameDevice(&held, at) }
		if other != c && (slices.ContainsFunc(other.record.Attachments, has) || other.doing == doAgain && slices.ContainsFunc(other.record.Abandoned, has)) {
			return fmt.Errorf("device %s: claim %s has not given it back yet: it is attached once that is done", at.Device, other.name())
		}
	}
	return nil
}
