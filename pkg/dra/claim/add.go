package claim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/host/store"
)

// add attaches a sandbox to networks of a claim, one after another, because the CNI specification allows one operation at a
// time for a container (1.1, section 3). The record says Adding before the first plugin runs.
func (s *steps) add(c *claim, indexes []int, sb *sandbox) error {
	refused := func(n int, err error) error { // before any plugin has run, so no DEL is needed
		for _, n := range indexes {
			if err := s.releaseLeases(c.record, &c.record.Attachments[n]); err != nil {
				s.Log.Warn("cannot release leases of a claim; retrying at Unprepare", "claim", c.ref, "error", err)
			}
		}
		s.metrics.exec("ADD", 0, err)
		return s.reportFailedAdd(c, n, sb, err)
	}

	// Lease the devices, so that nobody else may change them.
	for _, n := range indexes {
		if err := s.leaseDevice(c, &c.record.Attachments[n], sb); err != nil {
			return refused(n, nodeError(err))
		}
	}

	// Record what DEL and restore will need, before anything changes.
	record := c.record.Clone()
	for _, n := range indexes {
		at := &record.Attachments[n]
		if err := s.cni.check(at); err != nil {
			return refused(n, err)
		}
		note, err := s.node.Snapshot(at, s.table.noteOfGivenUp(at))
		if err != nil {
			return refused(n, nodeError(err))
		}
		at.Phase, at.Error = state.Adding, ""
		at.Execution = state.Execution{
			Sandbox: sb.ID, Netns: sb.Netns, BootID: s.BootID, Args: cniArgs(sb.Sandbox, c.ref.Name),
			InfoFile: filepath.Join(s.DeviceInfoDir, attachment.ClaimFileName(at.Network, sb.ID, at.IfName)), Note: note,
		}
	}
	if err := s.records.put(c, record, "adding"); err != nil {
		return refused(indexes[0], nodeError(err))
	}

	// Run the plugins. Each network is recorded, and its gate opened, as soon as its plugins have succeeded.
	var errs []error
	for r := range inTurn(record, indexes, func(at *state.Attachment) error { return s.addNetwork(record.UID, at) }) {
		if err := s.recordAdd(c, r, sb); err != nil {
			errs = append(errs, s.reportFailedAdd(c, r.n, sb, err))
		}
	}
	return errors.Join(errs...)
}

// result is an attachment after its plugins have run.
type result struct {
	n   int // index of the attachment in the record
	at  state.Attachment
	err error
}

// inTurn calls run for a copy of each attachment, and yields the results.
func inTurn(record *state.Claim, indexes []int, run func(*state.Attachment) error) iter.Seq[result] {
	return func(yield func(result) bool) {
		for _, n := range indexes {
			at := record.Attachments[n]
			err := run(&at)
			if !yield(result{n, at, err}) {
				return
			}
		}
	}
}

// leaseDevice leases the device of an attachment in the plugin's journal. Its error names the other holder, for
// example a pod that Multus attached.
func (s *steps) leaseDevice(c *claim, at *state.Attachment, sb *sandbox) error {
	if at.NodeDevice == nil {
		return nil
	}
	if err := s.table.checkReleased(c, at); err != nil {
		return err
	}
	return s.node.Leases.Lease(c.record, at, sb.Netns, sb.Pod.UID, fmt.Sprintf(": pod %s/%s (%s) cannot have it too; request a device by a claim or by Multus, not by both",
		sb.Pod.Namespace, sb.Pod.Name, at.IfName))
}

// addNetwork runs ADD and stores its results in the attachment.
func (s *steps) addNetwork(uid string, at *state.Attachment) (err error) {
	defer func(began time.Time) { s.metrics.exec("ADD", time.Since(began), err) }(time.Now())
	if err := s.node.Bind(at); err != nil {
		return nodeError(err)
	}
	initial, err := s.writeInitialInfo(at)
	if err != nil {
		return nodeError(err)
	}
	at.Result, err = s.cni.add(key(uid, at), at)
	s.Reached("exec ADD")
	if err != nil {
		return err
	}
	info, err := s.finalInfo(at, initial)
	if err != nil {
		return &cniexec.Error{Reason: ReasonInfo, Err: fmt.Errorf("device-info file of network %s: %w", at.Network, err)}
	}
	at.Metadata, err = s.metadata(at, info)
	return err
}

// recordAdd records the result of an ADD. After a success it opens the gate.
func (s *steps) recordAdd(c *claim, r result, sb *sandbox) error {
	record := c.record.Clone()
	if r.err != nil {
		record.Attachments[r.n].Error = r.err.Error()
		s.records.setRecord(c, record, true) // the record on disk already says Adding
		return r.err
	}
	r.at.Phase = state.Added
	r.at.Ready.Set(string(metav1.ConditionTrue), time.Now())
	record.Attachments[r.n], record.StatusOwed = r.at, true
	if err := s.records.put(c, record, "added"); err != nil {
		return err
	}
	s.reports.queue.Add(c.uid())
	if err := s.gate.open(c, []int{r.n}); err != nil {
		return err
	}
	refused := r.at.Late
	s.table.do(func() {
		if refused = refused || !sb.awaited; refused && !r.at.Late {
			if lacks, _ := s.table.lacking(sb); lacks == nil {
				s.metrics.waits.Observe(time.Since(sb.seen).Seconds())
			}
		}
	})
	if refused { // containers may have been refused
		s.opened(r.at.Device)
	}
	return nil
}

// reportFailedAdd logs a failed ADD, sends a notice to the pod, and fails a sandbox that waits for the network.
func (s *steps) reportFailedAdd(c *claim, n int, sb *sandbox, err error) error {
	at := &c.record.Attachments[n]
	err = c.wrap(at, err)
	s.Log.Error("cannot attach a pod", "pod", sb.Pod, "sandbox", sb.ID, "error", err)
	s.notices.send(sb.Pod, NoticeFailed, err.Error())
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if sb.awaited && !at.Late {
		s.table.failSandbox(sb, err)
	}
	if c.attachError == "" {
		c.attachError = err.Error()
	}
	return err
}

// infoFile returns the device-info file of an attachment from the record, because node settings may have changed.
func infoFile(at *state.Attachment) (dir *store.Dir, name string) {
	return store.Open(filepath.Dir(at.InfoFile)), filepath.Base(at.InfoFile)
}

// writeInitialInfo writes the device-info file before ADD, for plugins such as ovs-cni that read it, and returns its
// content, or nil if nothing is known about the device. DEL removes the file, because the record already names it.
func (s *steps) writeInitialInfo(at *state.Attachment) ([]byte, error) {
	outside := *at
	outside.Netns = "" // the pod's interface does not exist yet
	info := s.node.Describe(&outside)
	if info == nil {
		return nil, nil
	}
	dir, name := infoFile(at)
	err := dir.Write(name, info.Encode())
	s.Reached("device-info file")
	return info.Encode(), err
}

// finalInfo reads the device-info file after ADD. If the file is missing or still has the initial content from
// [steps.writeInitialInfo], finalInfo writes the facts that are known now, or removes the file if there are
// none. An invalid file is an error, because the pod could not find its device. finalInfo returns nil for a file
// of another major version.
func (s *steps) finalInfo(at *state.Attachment, initial []byte) (*devinfo.Info, error) {
	dir, name := infoFile(at)
	data, err := dir.Read(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && initial != nil && bytes.Equal(data, initial) {
		info := s.node.Describe(at)
		if info == nil { // for example, the interface belongs to another device
			return nil, dir.Remove(name)
		}
		at.Info = info.Encode()
		return info, dir.Write(name, at.Info)
	}
	if err != nil {
		return nil, err
	}
	at.Info = data
	info, err := dir.Parse(name, data)
	switch {
	case errors.As(err, new(*devinfo.VersionError)):
		s.Log.Warn("device-info file has an unknown version", "network", at.Network, "error", err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w; fix the CNI plugin that wrote it", err)
	}
	return info, nil
}

func (s *steps) metadata(at *state.Attachment, info *devinfo.Info) (json.RawMessage, error) {
	data, warnings, err := metadata.NetworkData(at.Result, at.IfName, at.Netns)
	if err != nil {
		return nil, wrapReason(err, "network %s", at.Network)
	}
	_, more := metadata.Data(at.Result, devices.Shown(at)) // only the warnings are needed: see reports.devices
	for _, w := range append(warnings, more...) {
		s.Log.Warn(w, "network", at.Network, "sandbox", at.Sandbox, "ifName", at.IfName)
	}
	return devices.Encoded(devices.Metadata{NetworkData: data, Attributes: s.node.Attributes(at, info)}), nil
}

// key returns the name of an attachment's cache directory.
func key(uid string, at *state.Attachment) string {
	return uid + "@" + at.IfName + "@" + at.Sandbox
}
