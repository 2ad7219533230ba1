package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/dra/status"
)

// A claim belongs to one pod (Device Configuration API). Several pods may name a claim that is
// not made from a template. The kubelet prepares it for the first of them and does not tell the
// driver of the others, so the driver reads such claims when a sandbox starts.

const (
	readLimit  = 500 * time.Millisecond // for the claims that a new sandbox waits for
	sweepLimit = 30 * time.Second       // for those that a sweep reads
)

// ReadClaim returns a function that reads a claim from the API server. It returns nil if the claim
// was deleted, or if its name is another claim's now.
func ReadClaim(client kubernetes.Interface) func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
	return func(ctx context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
		claim, err := client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case status.Missing(err):
			return nil, nil
		case err != nil:
			return nil, err
		case claim.UID != ref.UID:
			return nil, nil
		}
		return claim, nil
	}
}

// ask reads the claims that a new sandbox's pod may have and that are recorded for other pods. The
// error refuses the sandbox: another pod's sandbox has one that is reserved for this pod.
func (a *Agent) ask(ctx context.Context, sb *sandbox) error {
	a.mu.Lock()
	a.know(sb)
	var others []*claim
	for _, c := range a.claims {
		if a.Read != nil && c.record.Shared && c.ref.Namespace == sb.pod.Namespace && !c.isFor(sb.pod.UID) {
			others = append(others, c)
		}
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	errs := make([]error, len(others))
	var reads sync.WaitGroup
	for n, c := range others {
		reads.Go(func() { errs[n] = a.askFor(ctx, c, sb) })
	}
	reads.Wait()
	return errors.Join(errs...)
}

// askFor reads one claim. If that fails, the sandbox goes on: the gates keep the claim's containers
// out of it, and the next sweep reads the claim again.
func (a *Agent) askFor(ctx context.Context, c *claim, sb *sandbox) error {
	now, err := a.Read(ctx, c.ref)
	if err != nil {
		a.Log.Warn("cannot read whether a claim is this pod's: its containers wait if it is", "claim", c.ref, "pod", sb.pod, "error", err)
	}
	if now == nil {
		return nil
	}
	if pods, err := cniconfig.Pods(now); err != nil || !slices.ContainsFunc(pods, sb.isOf) {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case c.gone || c.forget:
		return fmt.Errorf("claim %s: unprepared meanwhile", c.ref)
	case isBefore(now.ResourceVersion, c.version): // Prepare was told something newer
	case !isAllocated(c.record, now, a.Driver):
		return fmt.Errorf("claim %s has other devices than the kubelet has prepared: delete this pod, so that the kubelet prepares the claim again", c.name())
	case !a.isInUse(c):
		c.version = now.ResourceVersion
		a.give(c, sb.pod)
	}
	if c.isFor(sb.pod.UID) {
		return nil
	}
	return fmt.Errorf("claim %s is held by pod %s/%s, and a claim belongs to one pod: this pod starts once that pod has ended. "+
		"To run both, use a ResourceClaimTemplate. A Deployment whose pods name one claim needs strategy Recreate, or maxSurge: 0",
		c.name(), c.pod.Namespace, c.pod.Name)
}

// reserve takes note of the pods that a claim is reserved for. If no sandbox has the claim, it goes
// to the pod whose sandbox runs, or to the first one. The mutex must be held.
func (a *Agent) reserve(c *claim, pods []state.Pod) {
	if a.isInUse(c) {
		return
	}
	for _, pod := range pods {
		if a.sandboxOf(pod.UID) != nil {
			a.give(c, pod)
			return
		}
	}
	if !slices.ContainsFunc(pods, func(p state.Pod) bool { return c.isFor(p.UID) }) {
		a.give(c, pods[0])
	}
}

// give has a claim belong to a pod. The mutex must be held.
func (a *Agent) give(c *claim, pod state.Pod) {
	if !c.isFor(pod.UID) {
		c.pod, c.unsaved = pod, true
		a.rouse(c)
	}
}

// isInUse reports whether a sandbox has a claim, or may have it: a runtime does not list sandboxes
// of whose state it is not sure. The mutex must be held.
func (a *Agent) isInUse(c *claim) bool {
	return !a.synced && !c.fresh || a.sandboxOf(c.pod.UID) != nil || slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool {
		if at.Phase != state.Adding && at.Phase != state.Added {
			return false
		}
		if sb := a.sandboxes[at.Sandbox]; sb != nil {
			return a.runs(sb)
		}
		return at.BootID == a.BootID && !a.isGone(at.Netns)
	})
}

// reread takes note of what a claim is now that no sandbox has; nil = it was deleted.
func (a *Agent) reread(c *claim, now *resourceapi.ResourceClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case c.gone || c.forget || !a.isIdle(c) || now != nil && isBefore(now.ResourceVersion, c.version):
	case now == nil || !isAllocated(c.record, now, a.Driver):
		a.Log.Warn("a claim was deleted, or has other devices, and was not unprepared", "claim", c.ref)
		c.forget = true
		a.rouse(c)
	default:
		if pods, err := cniconfig.Pods(now); err == nil {
			c.version = now.ResourceVersion
			a.reserve(c, pods)
		}
	}
}

// isBefore reports whether one resource version of a claim is older than another.
func isBefore(version, known string) bool {
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
		if r.Driver != driver {
			continue
		}
		n++
		if !slices.ContainsFunc(record.Attachments, func(at state.Attachment) bool {
			return at.Request == r.Request && at.Pool == r.Pool && at.Device == r.Device && cniconfig.SameShare(at.ShareID, r.ShareID)
		}) {
			return false
		}
	}
	return n == len(record.Attachments)
}
