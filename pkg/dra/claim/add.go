package claim

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
)

// add attaches a sandbox to networks of a claim, one after another, because the CNI specification allows one operation at a
// time for a container (1.1, section 3). The record says Adding before the first plugin runs.
func (s *steps) add(c *claim, indexes []int, sb *sandbox) error {
	refused := func(n int, err error) error { // before any plugin has run, so no DEL is needed
		for _, n := range indexes {
			if err := s.releaseLeases(c.record, &c.record.Attachments[n]); err != nil {
				s.options.Log.Warn("cannot release leases of a claim; retrying at Unprepare", "claim", c.ref, "error", err)
			}
		}
		s.metrics.exec("ADD", 0, err)
		return s.reportFailedAdd(c, n, sb, err)
	}

	// Lease each device, so that nobody else may change it, and record what DEL and restore will need before anything changes.
	record := c.record.Clone()
	for _, n := range indexes {
		at := &record.Attachments[n]
		advice := fmt.Sprintf(": pod %s/%s (%s) cannot have it too; request a device by a claim or by Multus, not by both", sb.Pod.Namespace, sb.Pod.Name, at.IfName)
		if err := s.node.Leases.Lease(c.record, at, sb.Netns, sb.Pod.UID, advice); err != nil {
			return refused(n, network.NodeError(err))
		}
		if err := s.networks.Check(at); err != nil {
			return refused(n, err)
		}
		note, err := s.node.Snapshot(at)
		if err != nil {
			return refused(n, network.NodeError(err))
		}
		at.Phase, at.Error = state.Adding, ""
		if at.Ready.Status == string(metav1.ConditionTrue) { // for the former sandbox, whose addresses others may have by now
			at.Ready.Set(string(metav1.ConditionFalse), time.Now())
			record.StatusOwed = true
			s.reports.queue.AddAfter(c.uid(), DefaultHold) // an ADD that is slower is reported
		}
		at.Execution = state.Execution{
			Sandbox: sb.ID, Netns: sb.Netns, BootID: s.table.bootID, Args: cniArgs(sb, c.ref.Name),
			InfoFile: filepath.Join(s.options.DeviceInfoDir, attachment.ClaimFileName(at.Network, sb.ID, at.IfName)), Note: note,
		}
	}
	if err := s.put(c, record, "adding"); err != nil {
		return refused(indexes[0], network.NodeError(err))
	}

	// Run the plugins. Each network is recorded, and its gate opened, as soon as its plugins have succeeded.
	var errs []error
	for _, n := range indexes {
		at, began := record.Attachments[n], time.Now()
		err := s.networks.Add(record.UID, &at)
		s.metrics.exec("ADD", time.Since(began), err)
		if err := s.recordAdd(c, n, at, err, sb); err != nil {
			errs = append(errs, s.reportFailedAdd(c, n, sb, err))
		}
	}
	return errors.Join(errs...)
}

// recordAdd records attachment n after its ADD. If that has not failed, recordAdd opens the gate.
func (s *steps) recordAdd(c *claim, n int, at state.Attachment, failed error, sb *sandbox) error {
	record := c.record.Clone()
	if failed != nil {
		record.Attachments[n].Error = failed.Error()
		s.setRecord(c, record, true) // the record on disk already says Adding
		return failed
	}
	at.Phase = state.Added
	at.Ready.Set(string(metav1.ConditionTrue), time.Now())
	record.Attachments[n], record.StatusOwed = at, true
	if err := s.put(c, record, "added"); err != nil {
		return err
	}
	s.reports.queue.Add(c.uid())
	var beside bool // the sandbox has not waited
	err := s.gate.open(c, []int{n}, func() {
		beside = at.Late || !sb.awaited
		if lacks, _ := s.table.lacking(sb); !at.Late && lacks == nil {
			s.metrics.waits.Observe(time.Since(sb.seen).Seconds())
		}
	})
	if beside { // containers may have been refused
		s.opened(at.Device)
	}
	return err
}

// reportFailedAdd logs a failed ADD, sends a notice to the pod, and fails a sandbox that waits for the network.
func (s *steps) reportFailedAdd(c *claim, n int, sb *sandbox, err error) error {
	at := &c.record.Attachments[n]
	err = c.wrap(at, err)
	s.options.Log.Error("cannot attach a pod", "pod", sb.Pod, "sandbox", sb.ID, "error", err)
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

// cniArgs returns the CNI_ARGS of Kubernetes runtimes, in their order, and the name of the claim.
func cniArgs(sb *sandbox, claimName string) [][2]string {
	return [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", sb.Pod.Namespace},
		{"K8S_POD_NAME", sb.Pod.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", sb.ID},
		{"K8S_POD_UID", string(sb.Pod.UID)},
		{pod.ClaimArg, claimName},
	}
}
