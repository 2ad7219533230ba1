package dra

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/state"
)

// Prepare notes down what a claim asks for, and refuses what cannot be done. It runs no
// CNI plugin: there is no network namespace yet. Preparing again gives what is on
// record, with the metadata of a network that is attached by now.
func (a *Agent) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) (devices []kubeletplugin.Device, err error) {
	defer a.event("Prepare", time.Now(), &err)
	c, fresh, err := a.claimFor(claim)
	if err != nil {
		return nil, err
	}
	if err := take(ctx, c); err != nil {
		return nil, err
	}
	defer give(c)
	switch {
	case c.gone:
		return nil, fmt.Errorf("claim %s: unprepared meanwhile", c.ref)
	case fresh != nil && c.record.Pod.UID != fresh.Pod.UID:
		err = a.handOver(c, fresh)
	case c.fresh:
		err = a.saveFirst(c)
	}
	if err != nil {
		return nil, err
	}
	for n := range c.record.Attachments {
		devices = append(devices, a.device(c, &c.record.Attachments[n]))
	}
	return devices, nil
}

// claimFor is the claim as it is known, and else as it is resolved. What was accepted
// once for a pod stays so. fresh is nil if nothing had to be resolved.
func (a *Agent) claimFor(claim *resourceapi.ResourceClaim) (c *claim, fresh *state.Claim, err error) {
	a.mu.Lock()
	known, problem := a.claims[claim.UID], a.problems[claim.UID]
	isKnown := known != nil && isFor(claim, known.pod)
	a.mu.Unlock()
	var newer *state.SchemaError
	if errors.As(problem.Err, &newer) {
		return nil, nil, problem.Err
	}
	if isKnown {
		return known, nil, nil
	}
	pod, networks, err := cniconfig.Resolve(claim, a.Policy)
	if err != nil {
		return nil, nil, err
	}
	fresh = recordOf(claim, pod, networks)
	c, err = a.admit(fresh, networks)
	return c, fresh, err
}

func isFor(claim *resourceapi.ResourceClaim, pod types.UID) bool {
	reserved := claim.Status.ReservedFor
	return len(reserved) == 1 && reserved[0].UID == pod
}

// admit takes a claim in. Interface names are checked and taken at once, for two claims
// of a pod may be prepared at the same time.
func (a *Agent) admit(fresh *state.Claim, networks []cniconfig.Network) (*claim, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := map[string]string{}
	for uid, c := range a.claims {
		if c.pod != fresh.Pod.UID || uid == fresh.UID {
			continue
		}
		for _, name := range c.ifNames {
			taken[name] = "claim " + c.ref.Namespace + "/" + c.ref.Name
		}
	}
	if err := cniconfig.Distinct(networks, taken); err != nil {
		return nil, err
	}
	c := a.claims[fresh.UID]
	if c == nil {
		c = a.known(fresh)
		c.fresh = true
		a.claims[fresh.UID] = c
	}
	return c, nil
}

// saveFirst writes a new claim, or forgets it: the kubelet is told that it is not
// prepared.
func (a *Agent) saveFirst(c *claim) error {
	err := a.save(c, "prepared")
	if err != nil {
		a.drop(c)
		return err
	}
	c.fresh = false
	return nil
}

// drop takes a claim out of the agent.
func (a *Agent) drop(c *claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.gone = true
	delete(a.claims, c.ref.UID)
}

// handOver gives a claim to another pod than the one it was prepared for. The kubelet
// does not always unprepare it in between.
func (a *Agent) handOver(c *claim, fresh *state.Claim) error {
	all := func(*state.Attachment) bool { return true }
	if err := a.detachAll([]*claim{c}, all, ""); err != nil {
		return fmt.Errorf("detach pod %s/%s first: %w", c.record.Pod.Namespace, c.record.Pod.Name, err)
	}
	c.record = fresh
	return a.save(c, "prepared")
}

func recordOf(claim *resourceapi.ResourceClaim, pod cniconfig.Pod, networks []cniconfig.Network) *state.Claim {
	record := &state.Claim{
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		Pod: state.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	for _, n := range networks {
		record.Attachments = append(record.Attachments, state.Attachment{
			Request: n.Request, Pool: n.Pool, Device: n.Device, ShareID: n.ShareID,
			Network: n.Name, CNIVersion: n.CNIVersion, IfName: n.IfName, List: n.List, Phase: state.Prepared,
		})
	}
	return record
}

// Unprepare forgets a claim, after any DEL that it owes. An error makes the kubelet try
// again; a claim that is not known is success.
func (a *Agent) Unprepare(ctx context.Context, uid types.UID) (err error) {
	defer a.event("Unprepare", time.Now(), &err)
	a.mu.Lock()
	c, problem := a.claims[uid], a.problems[uid]
	a.mu.Unlock()
	var newer *state.SchemaError
	if errors.As(problem.Err, &newer) {
		return problem.Err
	}
	if c == nil {
		if problem.Err != nil {
			a.Log.Error("a claim is unprepared of which nothing is known: its networks may be left over", "claimUID", uid, "setAside", problem.Aside)
		}
		return nil
	}
	return a.outlast(ctx, func() error { return a.unprepare(c) })
}

func (a *Agent) unprepare(c *claim) error {
	if err := take(context.Background(), c); err != nil {
		return err
	}
	defer give(c)
	if c.gone {
		return nil
	}
	all := func(*state.Attachment) bool { return true }
	if err := a.detachAll([]*claim{c}, all, ""); err != nil {
		return err
	}
	if err := a.state.Remove(c.ref.UID); err != nil {
		return fmt.Errorf("claim %s: %w", c.ref, err)
	}
	a.step("forgotten")
	a.drop(c)
	a.reports.Forget(c.ref.UID)
	return nil
}
