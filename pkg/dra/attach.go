package dra

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/attachment"
	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/dra/devices/inventory"
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
		former, err := a.check(at)
		if err != nil {
			return refused(n, err)
		}
		at.Phase, at.Error = state.Adding, ""
		at.Execution = state.Execution{
			Sandbox: sb.id, Netns: sb.netns, BootID: a.BootID, Args: cniArgs(sb, c.ref.Name),
			InfoFile: filepath.Join(a.DeviceInfoDir, attachment.ClaimFileName(at.Network, sb.id, at.IfName)), Former: former,
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
	if err := a.bindDriver(at); err != nil {
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
	m := &state.Metadata{NetworkData: data}
	if at.Node != nil {
		m.Attributes = attributesOf(at)
	}
	if info != nil && a.Finder != nil {
		if m.Attributes == nil {
			m.Attributes = map[string]resourceapi.DeviceAttribute{}
		}
		describer := metadata.Describer{Sys: a.Finder.Sys, Warn: func(what string) { a.Log.Warn("device metadata", "left out", what) }}
		maps.Copy(m.Attributes, describer.Attributes(info))
		if mtu := metadata.MTUOf(at.Result, at.IfName, at.Netns); info.VhostUser != nil && mtu > 0 {
			m.Attributes[metadata.MTU] = resourceapi.DeviceAttribute{IntValue: &mtu}
		}
	}
	return m, nil
}

// key names the directory of an attachment to a sandbox.
func key(claim types.UID, at *state.Attachment) string {
	return string(claim) + "@" + at.IfName + "@" + at.Sandbox
}

// discover describes the exclusive device of an attachment as the devinfo plugin would;
// nil = there is none, or it cannot be described, which is no reason to fail.
func (a *Agent) discover(at *state.Attachment) *devinfo.Info {
	if a.Finder == nil || at.Node == nil || at.Node.Shared() {
		return nil
	}
	id := cmp.Or(at.Node.VDPA, at.Node.Aux, at.Node.PCI)
	found, err := a.Finder.Find(discovery.Target{
		DeviceIDs: []config.NamedID{{Key: "device", ID: id}}, Netns: at.Netns, IfName: at.IfName,
	})
	if err == nil && found.Problem != nil {
		err = found.Problem
	}
	if err == nil && found.Info == nil {
		return nil
	}
	var info *devinfo.Info
	if err == nil {
		info = devinfo.Merge(nil, found.Info, nil)
		err = info.Validate().Err()
	}
	if err != nil {
		a.Log.Warn("the device cannot be described: its containers get no device information", "device", at.Device, "error", err)
		return nil
	}
	return info
}

// writeInfo writes the device-info file that no plugin has written. DEL removes it.
func (a *Agent) writeInfo(at *state.Attachment) (*devinfo.Info, error) {
	info := a.discover(at)
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

// attributesOf are those that a device is offered with, as metadata has them; with the
// driver that it has for the pod, which leaves it no interface on the node.
func attributesOf(at *state.Attachment) map[string]resourceapi.DeviceAttribute {
	all := make(map[string]resourceapi.DeviceAttribute, len(at.Node.Published.Attributes))
	for name, value := range at.Node.Published.Attributes {
		all[string(name)] = value
	}
	if at.Driver != "" {
		all[string(inventory.AttrDriver)] = resourceapi.DeviceAttribute{StringValue: &at.Driver}
		delete(all, string(inventory.AttrIfName))
	}
	return all
}
