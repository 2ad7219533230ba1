package claim

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
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

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/plan"
)

// claim is a claim on record. After Unprepare it may remain for undeleted attachments. The table's mutex guards all
// fields except ref, describing and mayStillRun. Only the worker replaces record, by a clone, because others may
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
	attachError string       // why an ADD failed; "" = no ADD failed, or the status already contains the error
	saved       *state.Claim // the record on disk; nil = none has been written yet
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

	mayStillRun map[string]bool // interfaces whose plugins from an earlier process may still run; used by the worker only
}

// retry is a failed step and the time of its next try. err is nil if it only waits for a device to return.
type retry struct {
	step  plan.Action
	err   error
	pause time.Duration // doubles with each failure; of steps other than DEL and restore
	after time.Time
}

// newClaim returns a claim whose record is on disk.
func newClaim(record *state.Claim) *claim {
	c := &claim{record: record, saved: record, pod: record.Pod, gatesOpen: map[int]bool{}, mayStillRun: map[string]bool{}, delBackOff: map[int]retry{}}
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

func newRecord(asked *resourceapi.ResourceClaim, driver string, pod state.Pod, networks []state.Attachment) *state.Claim {
	record := &state.Claim{Namespace: asked.Namespace, Name: asked.Name, UID: string(asked.UID), Pod: pod, Shared: metav1.GetControllerOf(asked) == nil, Attachments: networks}
	record.Parameters = parametersOf(asked, driver)
	if name := asked.Annotations[resourceapi.PodResourceClaimAnnotation]; !record.Shared && len(validation.IsDNS1123Label(name)) == 0 {
		record.PodClaim = name
	}
	return record
}

// parametersOf returns a digest of the parameters of an allocation for the driver, whatever their spelling in JSON.
func parametersOf(claim *resourceapi.ResourceClaim, driver string) string {
	var all []any
	for _, c := range claim.Status.Allocation.Devices.Config {
		if c.Opaque != nil && c.Opaque.Driver == driver {
			var parameters any
			_ = json.Unmarshal(c.Opaque.Parameters.Raw, &parameters) // the API server has checked that it is JSON
			all = append(all, c.Source, c.Requests, parameters)
		}
	}
	return fmt.Sprintf("%x", sha256.Sum256(config.Encode(all)))
}

// isAllocated reports whether the record has exactly the devices of this driver that are allocated to the claim, and is of the
// same parameters: a claim may get its device again with those of a class that has changed.
func isAllocated(record *state.Claim, now *resourceapi.ResourceClaim, driver string) bool {
	if now.Status.Allocation == nil || record.Parameters != "" && record.Parameters != parametersOf(now, driver) {
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

// sandbox is a pod's sandbox, as reported by the container runtime, and its progress. The table's mutex guards it.
type sandbox struct {
	ID     string
	Netns  string // path of the network namespace; "" = the host's
	Pod    state.Pod
	userns bool // the pod has its own user namespace (hostUsers: false)

	order   int // higher for newer sandboxes
	seen    time.Time
	awaited bool             // the runtime waits until the sandbox is attached
	ended   bool             // the runtime stopped the sandbox, or attaching it failed
	err     error            // why attaching it failed
	refused map[string]error // why the pod did not get claims that it uses when they were checked, by their names
}

func (sb *sandbox) isOf(pod state.Pod) bool { return sb.Pod.UID == pod.UID }
