package claim

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
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
func (s *steps) add(c *claim, which []int, sb *sandbox) error {
	refused := func(n int, err error) error { // nothing is run, and no DEL owed
		s.letGoAll(c, which)
		s.metrics.exec("ADD", 0, err)
		return s.notAdded(c, n, sb, err)
	}
	if n, err := s.hold(c, which, sb); err != nil {
		return refused(n, err)
	}
	record := c.record.Clone()
	for _, n := range which {
		at := &record.Attachments[n]
		note, err := s.check(at)
		if err != nil {
			return refused(n, err)
		}
		at.Phase, at.Error = state.Adding, ""
		at.Execution = state.Execution{
			Sandbox: sb.ID, Netns: sb.Netns, BootID: s.BootID, Args: cniArgs(sb.Sandbox, c.ref.Name),
			InfoFile: filepath.Join(s.DeviceInfoDir, attachment.ClaimFileName(at.Network, sb.ID, at.IfName)), Note: note,
		}
	}
	if err := s.records.put(c, record, "adding"); err != nil {
		s.letGoAll(c, which)
		return s.notAdded(c, which[0], sb, &cniexec.Error{Reason: cniexec.ReasonNode, Err: err})
	}
	results := make(chan result)
	for _, n := range which {
		go func() { results <- s.runAdd(c.ref.UID, n, record.Attachments[n]) }()
	}
	var errs []error
	for range which {
		r := <-results
		if err := s.added(c, r); err != nil {
			errs = append(errs, s.notAdded(c, r.n, sb, err))
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

// hold takes leases of the devices of attachments. The error says which attachment's is held already:
// Multus has attached the pod before the agent hears of it, or a claim has not given it back.
func (s *steps) hold(c *claim, which []int, sb *sandbox) (n int, err error) {
	for _, n := range which {
		at := &c.record.Attachments[n]
		if at.Node == nil {
			continue
		}
		err := s.table.otherClaim(c, at)
		if err == nil {
			err = s.Node.Leases.Hold(c.record, at, sb.Netns, sb.Pod.UID, fmt.Sprintf(": pod %s/%s (%s) cannot have it too: ask for a device once, by a claim or by Multus",
				sb.Pod.Namespace, sb.Pod.Name, at.IfName))
		}
		if err != nil {
			return n, &cniexec.Error{Reason: cniexec.ReasonNode, Err: err}
		}
	}
	return 0, nil
}

// check says what keeps a network from being added, and else returns the note of its device.
func (s *steps) check(at *state.Attachment) (devices.Note, error) {
	if err := s.cni.check(at); err != nil {
		return nil, err
	}
	note, err := s.Node.Take(at, s.table.oldNote(at))
	if err != nil {
		return nil, &cniexec.Error{Reason: cniexec.ReasonNode, Err: err}
	}
	return note, nil
}

// runAdd runs ADD and takes in what it gives.
func (s *steps) runAdd(uid types.UID, n int, at state.Attachment) result {
	began := time.Now()
	err := s.addNetwork(uid, &at)
	s.metrics.exec("ADD", time.Since(began), err)
	return result{n, at, err}
}

func (s *steps) addNetwork(uid types.UID, at *state.Attachment) (err error) {
	if err := s.Node.Bind(at); err != nil {
		return &cniexec.Error{Reason: cniexec.ReasonNode, Err: err}
	}
	at.Result, err = s.cni.add(key(uid, at), at)
	s.Step("exec ADD")
	if err != nil {
		return err
	}
	info, err := s.readInfo(at)
	if err == nil && at.Info == nil {
		info, err = s.writeInfo(at)
	}
	if err != nil {
		return &cniexec.Error{Reason: ReasonInfo, Err: err}
	}
	at.Metadata, err = s.describe(at, info)
	return err
}

// added puts the result of an ADD on record, and opens the gate.
func (s *steps) added(c *claim, r result) error {
	record := c.record.Clone()
	if r.err != nil {
		record.Attachments[r.n].Error = r.err.Error()
		s.records.adopt(c, record, true) // on disk it is Adding, as it should be
		return r.err
	}
	r.at.Phase = state.Added
	r.at.Ready.Set(metav1.ConditionTrue, time.Now())
	record.Attachments[r.n], record.StatusOwed = r.at, true
	if err := s.records.put(c, record, "added"); err != nil {
		return err
	}
	s.reports.queue.Add(c.ref.UID)
	return s.gate.open(c, []int{r.n})
}

// notAdded says whose ADD failed. It ends the wait of the sandbox at once, unless the
// network is one that no sandbox waits for.
func (s *steps) notAdded(c *claim, n int, sb *sandbox, err error) error {
	at := &c.record.Attachments[n]
	err = c.about(at, err)
	s.Log.Error("pod is not attached", "pod", sb.Pod, "sandbox", sb.ID, "error", err)
	s.notices.tell(sb.Pod, NoticeFailed, err.Error())
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if sb.waited && !at.Late {
		s.table.giveUp(sb, err)
	}
	if c.blame == "" {
		c.blame = err.Error()
	}
	return err
}

// infoOf is where the device-info file is, which the node's settings may have elsewhere by now.
func infoOf(at *state.Attachment) (dir *store.Dir, name string) {
	return store.Open(filepath.Dir(at.InfoFile)), filepath.Base(at.InfoFile)
}

// readInfo reads the device-info file, if a plugin has written one. One that makes no
// sense fails the ADD: the pod would not find its device. One of another major version
// is the pod's to read.
func (s *steps) readInfo(at *state.Attachment) (*devinfo.Info, error) {
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
		s.Log.Warn("device-info file not understood", "network", at.Network, "error", err)
		info = nil
	case err != nil:
		return nil, fmt.Errorf("device-info file of network %s: %w: correct the CNI plugin that wrote it", at.Network, err)
	}
	at.Info = data
	return info, nil
}

// writeInfo writes the device-info file that no plugin has written. DEL removes it.
func (s *steps) writeInfo(at *state.Attachment) (*devinfo.Info, error) {
	info := s.Node.Describe(at)
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

// describe is what the pod's metadata file says of a device.
func (s *steps) describe(at *state.Attachment, info *devinfo.Info) (*state.Metadata, error) {
	data, warnings, err := metadata.NetworkData(at.Result, at.IfName, at.Netns)
	if err != nil {
		return nil, &cniexec.Error{Reason: cniexec.ReasonOutput, Err: fmt.Errorf("network %s: %w", at.Network, err)}
	}
	_, more := metadata.Data(at.Result, shown(at)) // as the status will have it
	for _, w := range append(warnings, more...) {
		s.Log.Warn(w, "network", at.Network, "sandbox", at.Sandbox, "ifName", at.IfName)
	}
	return &state.Metadata{NetworkData: data, Attributes: s.Node.Attributes(at, info)}, nil
}

// key names the directory of an attachment to a sandbox.
func key(claim types.UID, at *state.Attachment) string {
	return string(claim) + "@" + at.IfName + "@" + at.Sandbox
}
