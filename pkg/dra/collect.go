package dra

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/dra/status"
)

// ClaimGone asks the API server whether it has a claim no more, or another one of its name.
func ClaimGone(client kubernetes.Interface) func(context.Context, kubeletplugin.NamespacedObject) (bool, error) {
	return func(ctx context.Context, claim kubeletplugin.NamespacedObject) (bool, error) {
		c, err := client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if status.Missing(err) {
			return true, nil
		}
		return err == nil && c.UID != claim.UID, err
	}
}

// keepCollecting collects now, and every [Options.AbandonedEvery], until ctx ends.
func (a *Agent) keepCollecting(ctx context.Context) {
	tick := time.NewTicker(a.AbandonedEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		a.collect(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// collect ends what nobody will unprepare: records whose claim is gone, and leases of
// claims that are not on record.
func (a *Agent) collect(ctx context.Context) {
	for _, c := range a.idle() {
		gone, err := a.Gone(ctx, c.ref)
		if err != nil && ctx.Err() == nil {
			a.Log.Error("whether a claim is gone is not known", "claim", c.ref, "error", err)
		}
		if err != nil || !gone {
			continue
		}
		a.Log.Warn("a claim is gone, and was not unprepared", "claim", c.ref)
		if _, err := a.dismiss(c.ref.UID); err != nil {
			a.Log.Error("a claim that is gone is not forgotten", "claim", c.ref, "error", err)
		}
	}
	if err := a.collectLeases(); err != nil {
		a.Log.Error("leases of claims that are not on record", "error", err)
	}
}

// idle are the claims that no sandbox runs with, for all that is known.
func (a *Agent) idle() (list []*claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.claims {
		runs := !a.synced || a.sandboxFor(c) != nil || c.record.Abandoned() != nil
		for _, at := range c.record.Attachments {
			runs = runs || a.isListed(at.Sandbox)
		}
		if a.Gone != nil && !runs {
			list = append(list, c)
		}
	}
	return list
}

func (a *Agent) collectLeases() error {
	if a.Journal == nil {
		return nil
	}
	records, err := a.Journal.Claims()
	if err != nil {
		return err
	}
	for _, record := range records {
		uid, _, _ := strings.Cut(record, "=")
		err := a.Journal.LetGoIf(record, func() error { return a.unrecorded(types.UID(uid)) })
		if err != nil && !errors.Is(err, errRecorded) {
			return err
		}
	}
	return nil
}

var errRecorded = errors.New("the claim is on record")

// unrecorded is errRecorded if a claim is on record, be it unreadable.
func (a *Agent) unrecorded(uid types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range slices.AppendSeq(slices.Collect(maps.Keys(a.problems)), maps.Keys(a.claims)) {
		if state.UIDOf(key) == uid {
			return errRecorded
		}
	}
	return nil
}
