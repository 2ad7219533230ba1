package claim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/state"
)

// claim is a claim on record, or what is left of one. The table's mutex guards all fields but ref and orphans. Only
// the claim's worker replaces the record. A record itself never changes.
type claim struct {
	ref    kubeletplugin.NamespacedObject // never changes
	record *state.Claim

	// What events want.
	resourceVersion string    // of the claim in the API that they go by; "" = unknown
	pod             state.Pod // that the claim belongs to
	forgotten       bool      // it is unprepared
	attachError     string    // why nothing is attached, for the status; "" = it says so already, or it is
	rewriteMetadata bool      // somebody has written over the metadata

	// What the worker has come to.
	gatesOpen   map[int]bool // by attachment: whether its gate was open when the worker looked last
	gatesRDMA   string       // the variable that its gates were compared with then: see table.rdma
	neverSaved  bool         // the record was never written
	unsaved     bool         // the disk has not got the record as it is
	removed     bool         // it is not in the table any more
	runningStep action       // the step under way; none = none
	stepSandbox string       // the sandbox that it is for
	sentStatus  []resourceapi.AllocatedDeviceStatus

	// Back-offs. Failed DELs have their own: other failures and events must not make them fail more often.
	failure          retry
	delBackOff       map[int]retry // of DELs and restoring, by the attachments' places in the record
	retryUndeletedAt time.Time     // when the DELs that were given up are run again

	mayStillRun map[string]bool // interfaces for which plugins of an earlier process may still run; only for the worker
}

// retry is a step that has failed, and when it is taken again. err is nil for a device that may be on its way back.
type retry struct {
	step  action
	err   error
	after time.Time
}

// newClaim returns a claim with that record.
func newClaim(record *state.Claim) *claim {
	c := &claim{record: record, pod: record.Pod, gatesOpen: map[int]bool{}, mayStillRun: map[string]bool{}, delBackOff: map[int]retry{}}
	c.ref.Namespace, c.ref.Name, c.ref.UID = record.Namespace, record.Name, record.UID
	for _, at := range record.Attachments {
		c.mayStillRun[at.IfName] = at.Phase == state.Adding || at.Phase == state.Deleting
	}
	return c
}

func (c *claim) isFor(pod state.Pod) bool { return c.pod.UID == pod.UID }

// bareGatesOpen reports whether the gates are open of the devices that the claim brings no network for.
func (c *claim) bareGatesOpen() bool {
	for n, at := range c.record.Attachments {
		if at.Bare() && !c.gatesOpen[n] {
			return false
		}
	}
	return true
}

// hasPendingDel reports whether a DEL for a sandbox is pending. Restoring its devices does not count.
func (c *claim) hasPendingDel(sandbox string) bool {
	return slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool {
		return at.Sandbox == sandbox && at.Phase != state.Restoring
	})
}

// remainder returns what remains of the claim after Unprepare; nil = nothing.
func (c *claim) remainder() *claim {
	if len(c.record.Undeleted) == 0 {
		return nil
	}
	record := c.record.Clone()
	record.Pod, record.Attachments, record.StatusOwed = state.Pod{}, nil, false
	left := newClaim(record)
	left.retryUndeletedAt = c.retryUndeletedAt
	return left
}

// delErrors returns the errors of DELs and of restoring that have failed. The mutex must be held.
func (c *claim) delErrors() error {
	var errs []error
	for _, n := range slices.Sorted(maps.Keys(c.delBackOff)) {
		errs = append(errs, c.delBackOff[n].err)
	}
	return errors.Join(errs...)
}

// wrap adds the claim and the request of an attachment to an error.
func (c *claim) wrap(at *state.Attachment, err error) error {
	return fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, err)
}

// unpreparedError returns the error of a call during which the kubelet unprepared the claim.
func (c *claim) unpreparedError() error {
	return fmt.Errorf("claim %s was unprepared during this call", c.ref)
}

func (c *claim) name() string { return c.ref.Namespace + "/" + c.ref.Name }

func newRecord(claim *resourceapi.ResourceClaim, pod state.Pod, networks []cniconfig.Network) *state.Claim {
	record := &state.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, Pod: pod, Shared: metav1.GetControllerOf(claim) == nil}
	for _, n := range networks {
		record.Attachments = append(record.Attachments, n.Attachment)
	}
	return record
}

// withheldDevices returns the devices in a record that no other claim may get.
func withheldDevices(record *state.Claim) (devices []string) {
	for _, at := range slices.Concat(record.Attachments, record.Undeleted) {
		if at.Withheld() {
			devices = append(devices, at.Device)
		}
	}
	return devices
}

// podOf returns the pod of an attachment's sandbox.
func podOf(at *state.Attachment) state.Pod {
	namespace, name := at.Args.Name()
	return state.Pod{Namespace: namespace, Name: name, UID: types.UID(at.Args.UID())}
}

// isOlder reports whether one resource version of a claim is older than another.
func isOlder(version, known string) bool {
	order, err := resourceversion.CompareResourceVersion(version, known)
	return err == nil && order < 0
}

// isAllocated reports whether a record has the devices that are allocated to a claim now.
func isAllocated(record *state.Claim, claim *resourceapi.ResourceClaim, driver string) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	n := 0
	for _, r := range claim.Status.Allocation.Devices.Results {
		has := func(at state.Attachment) bool {
			return at.Request == r.Request && at.Pool == r.Pool && at.Device == r.Device && cniconfig.SameShare(at.ShareID, r.ShareID)
		}
		if r.Driver == driver {
			n++
			if !slices.ContainsFunc(record.Attachments, has) {
				return false
			}
		}
	}
	return n == len(record.Attachments)
}

// records writes the records of claims to disk.
type records struct {
	Options
	table   *table
	files   *state.Store
	reports *reports
}

// load reads what an earlier process has left.
func (r *records) load() error {
	records, problems, err := r.files.All()
	if err != nil {
		return err
	}
	for _, record := range records {
		r.table.claims[record.UID] = newClaim(record)
		if record.StatusOwed {
			r.reports.queue.Add(record.UID)
		}
	}
	for _, p := range problems {
		r.table.problems[p.UID] = p
		r.Log.Error("unreadable claim record; the networks and devices of the claim stay attached until an administrator detaches them",
			"claimUID", p.UID, "error", p.Err, "setAside", p.Aside)
	}
	return nil
}

// put writes a record and gives it to the claim.
func (r *records) put(c *claim, record *state.Claim, step string) error {
	r.table.do(func() { record.Pod = c.pod })
	if err := r.files.Put(record); err != nil {
		return fmt.Errorf("record claim %s: %w", c.ref, err)
	}
	r.Step(step)
	r.setRecord(c, record, true)
	return nil
}

// putOrRetry is like put, for a step that has been done: it is saved later if that fails, or repeated after a crash.
func (r *records) putOrRetry(c *claim, record *state.Claim, step string) {
	if err := r.put(c, record, step); err != nil {
		r.Log.Warn("cannot write a claim record; retrying", "error", err)
		r.setRecord(c, record, false)
	}
}

// setRecord gives the claim a record, which is on disk if saved.
func (r *records) setRecord(c *claim, record *state.Claim, saved bool) {
	if !slices.Equal(withheldDevices(c.record), withheldDevices(record)) {
		defer r.Node.Publish()
	}
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	if rdmaVariable(c.record.Attachments) != rdmaVariable(record.Attachments) {
		r.table.wakePod(c.pod) // the gates of the pod's other claims list its RDMA devices too
	}
	c.record, c.unsaved = record, !saved || record.Pod != c.pod
	if saved {
		c.neverSaved = false
	}
	r.table.notifyWaiters()
}

// drop replaces a claim by what is left of it; nil = nothing.
func (r *records) drop(c, left *claim) {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	c.removed = true
	delete(r.table.claims, c.ref.UID)
	if left != nil {
		r.table.claims[c.ref.UID] = left
	}
	r.table.wakePod(c.pod)
	r.table.backOff.Forget(c.ref.UID)
	r.reports.queue.Forget(c.ref.UID)
	r.table.notifyWaiters()
}
