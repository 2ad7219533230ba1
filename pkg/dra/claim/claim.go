package claim

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/claim/plan"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices"
)

// claim is a claim on record. After Unprepare it may remain for undeleted attachments. The table's mutex guards all
// fields except ref, describing, rdma and mayStillRun. Only the worker replaces record, by a clone, because others may
// read it.
type claim struct {
	ref    kubeletplugin.NamespacedObject
	record *state.Claim

	// Set by events.
	// known counts the copies of the API server that were used. A copy that was asked for before another one was used may
	// be out of date. Resource versions do not tell: they go back when etcd is restored from a backup.
	known     int
	pod       state.Pod // pod that holds the claim
	forgotten bool      // the kubelet has unprepared the claim

	// Set by events and by the worker.
	attachError string // why an ADD failed; "" = no ADD failed, or the status already contains the error
	neverSaved  bool   // no record has been written to disk yet
	unsaved     bool   // the record on disk differs from record
	removed     bool   // the claim is no longer in the table
	// gatesOpen says for each attachment whether its gate was open when it was last read or written. Whoever needs a
	// newer answer, such as the start of a sandbox, replaces the map. A read or write that has begun before then still
	// stores its result, but in the former map, which nobody reads.
	gatesOpen map[int]bool

	// Set by the worker.
	runningStep plan.Action // the step that is running, or none
	stepSandbox string      // the sandbox of that step

	sentStatus []resourceapi.AllocatedDeviceStatus // the last status that the API server got; set by [reports]

	// DEL and restore have back-offs of their own, which neither failures of other steps nor events change.
	failure          retry
	delBackOff       map[int]retry // for DEL and restore, by index of the attachment in the record
	retryUndeletedAt time.Time     // time of the next retry of DELs that were given up

	describing sync.Mutex // held while metadata is read from the record and written, so that the newest stays

	rdma *string // DEVINFO_RDMA_DEVICES in all open gates; nil = unknown; gate.writing guards it

	mayStillRun map[string]bool // interfaces whose plugins from an earlier process may still run; used by the worker only
}

// retry is a failed step and the time of its next try. err is nil if it only waits for a device to return.
type retry struct {
	step  plan.Action
	err   error
	after time.Time
}

func newClaim(record *state.Claim) *claim {
	c := &claim{record: record, pod: record.Pod, gatesOpen: map[int]bool{}, mayStillRun: map[string]bool{}, delBackOff: map[int]retry{}}
	c.ref.Namespace, c.ref.Name, c.ref.UID = record.Namespace, record.Name, types.UID(record.UID)
	for _, at := range record.Attachments {
		c.mayStillRun[at.IfName] = at.Phase == state.Adding || at.Phase == state.Deleting
	}
	return c
}

func (c *claim) isFor(pod state.Pod) bool { return c.pod.UID == pod.UID }

// bareGatesOpen reports whether all gates of devices without a network are open.
func (c *claim) bareGatesOpen() bool {
	for n, at := range c.record.Attachments {
		if at.Bare() && !c.gatesOpen[n] {
			return false
		}
	}
	return true
}

// hasPendingDel reports whether a DEL for a sandbox is pending. A pending restore does not count.
func (c *claim) hasPendingDel(sandbox string) bool {
	return slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool {
		return at.Sandbox == sandbox && at.Phase != state.Restoring
	})
}

// remainder returns a claim with only the undeleted attachments of c, or nil if c has none.
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

// delErrors returns the errors of the DELs and restores that are backing off. The mutex must be held.
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

// unpreparedError is the error of a call during which the kubelet unprepared the claim.
func (c *claim) unpreparedError() error {
	return fmt.Errorf("claim %s was unprepared during this call", c.ref)
}

func (c *claim) name() string { return c.ref.Namespace + "/" + c.ref.Name }

func (c *claim) uid() string { return string(c.ref.UID) }

func newRecord(asked *resourceapi.ResourceClaim, pod state.Pod, networks []cniconfig.Network) *state.Claim {
	record := &state.Claim{Namespace: asked.Namespace, Name: asked.Name, UID: string(asked.UID), Pod: pod, Shared: metav1.GetControllerOf(asked) == nil}
	if name := asked.Annotations[resourceapi.PodResourceClaimAnnotation]; !record.Shared && len(validation.IsDNS1123Label(name)) == 0 {
		record.PodClaim = name
	}
	for _, n := range networks {
		record.Attachments = append(record.Attachments, n.Attachment)
	}
	return record
}

// withheldDevices returns the devices of a record that no other claim may get.
func withheldDevices(record *state.Claim) (devices []string) {
	for _, at := range slices.Concat(record.Attachments, record.Undeleted) {
		if at.Withheld() {
			devices = append(devices, at.Device)
		}
	}
	return devices
}

// isAllocated reports whether the record has exactly the devices of this driver that are allocated to the claim.
func isAllocated(record *state.Claim, now *resourceapi.ResourceClaim, driver string) bool {
	if now.Status.Allocation == nil {
		return false
	}
	n := 0
	for _, r := range now.Status.Allocation.Devices.Results {
		has := func(at state.Attachment) bool {
			return at.Request == r.Request && at.Pool == r.Pool && at.Device == r.Device && ptr.Equal(at.ShareID, (*string)(r.ShareID))
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

type records struct {
	table   *table
	files   *state.Store
	reports *reports
	node    *devices.Node
	reached func(name string)
	log     *slog.Logger
}

// load reads the records that an earlier process wrote.
func (r *records) load() error {
	records, problems, err := r.files.All(devices.CheckRecord)
	if err != nil {
		return err
	}
	for _, record := range records {
		r.table.claims[record.UID] = newClaim(record)
		r.table.lastClaim = max(r.table.lastClaim, record.Order)
		if record.StatusOwed {
			r.reports.queue.Add(record.UID)
		}
	}
	for _, p := range problems {
		r.table.problems[p.UID] = p
		r.log.Error("unreadable claim record; the networks and devices of the claim stay attached until an administrator detaches them",
			"claimUID", p.UID, "error", p.Err, "setAside", p.Aside, "remedy", "detach them, remove the file setAside and restart the driver")
	}
	return nil
}

// put writes a record to disk, then makes it the claim's record.
func (r *records) put(c *claim, record *state.Claim, name string) error {
	r.table.do(func() { record.Pod = c.pod })
	if err := r.files.Put(record); err != nil {
		return fmt.Errorf("record claim %s: %w", c.ref, err)
	}
	r.reached(name)
	r.setRecord(c, record, true)
	return nil
}

// putOrRetry is put for a step that is already done. If the write fails, the new record is used anyway, and the
// worker writes it later. After a crash the step is repeated.
func (r *records) putOrRetry(c *claim, record *state.Claim, name string) {
	if err := r.put(c, record, name); err != nil {
		r.log.Warn("cannot write a claim record; retrying", "error", err)
		r.setRecord(c, record, false)
	}
}

// setRecord replaces the claim's record. saved reports whether the new record is on disk.
func (r *records) setRecord(c *claim, record *state.Claim, saved bool) {
	if !slices.Equal(withheldDevices(c.record), withheldDevices(record)) {
		defer r.node.Publish()
	}
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	if network.RDMAVariable(c.record.Attachments) != network.RDMAVariable(record.Attachments) {
		r.table.wakePod(c.pod) // the gates of the pod's other claims list its RDMA devices too
	}
	if record.Pod != c.record.Pod {
		c.gatesOpen = map[int]bool{} // the gates of devices without a network still admit the former pod
	}
	c.record, c.unsaved = record, !saved || record.Pod != c.pod
	if saved {
		c.neverSaved = false
	}
	r.table.notifyWaiters()
}

// drop removes c from the table. If left is not nil, left replaces c.
func (r *records) drop(c, left *claim) {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	c.removed = true
	delete(r.table.claims, c.uid())
	if left != nil {
		r.table.claims[c.uid()] = left
	}
	r.table.wakePod(c.pod)
	r.table.backOff.Forget(c.uid())
	r.reports.queue.Forget(c.uid())
	r.table.notifyWaiters()
}
