package dra

import (
	"context"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/state"
)

// The kubelet prepares a claim once, for the first pod that comes with it. Who else waits
// for it only the claim tells, in status.reservedFor, and that it was allocated anew. A claim
// from a template is its pod's alone, so only the others are watched.

// WatchClaim tells of a claim as it is, and whenever it has changed, until ctx ends.
func WatchClaim(client kubernetes.Interface) func(ctx context.Context, claim kubeletplugin.NamespacedObject, changed func(*resourceapi.ResourceClaim)) {
	return func(ctx context.Context, claim kubeletplugin.NamespacedObject, changed func(*resourceapi.ResourceClaim)) {
		claims := client.ResourceV1().ResourceClaims(claim.Namespace)
		only := fields.OneTermEqualSelector("metadata.name", claim.Name).String()
		list := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = only
				return claims.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = only
				return claims.Watch(ctx, o)
			},
		}
		tell := func(object any) {
			if c, ok := object.(*resourceapi.ResourceClaim); ok && c.UID == claim.UID {
				changed(c)
			}
		}
		_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: cache.ToListWatcherWithWatchListSemantics(list, client), ObjectType: &resourceapi.ResourceClaim{},
			Handler: cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }},
		})
		informer.RunWithContext(ctx)
	}
}

// watches are those of the claims that pods may share.
type watches struct {
	running sync.WaitGroup
	cancel  map[types.UID]context.CancelFunc
}

// watchShared watches the claims that are on record now, and no others.
func (a *Agent) watchShared(ctx context.Context, w *watches) {
	if a.Watch == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, cancel := range w.cancel {
		if a.claims[uid] == nil {
			cancel()
			delete(w.cancel, uid)
		}
	}
	for uid, c := range a.claims {
		if _, watched := w.cancel[uid]; watched || !c.record.Shared {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		w.cancel[uid] = cancel
		w.running.Go(func() {
			a.Watch(ctx, c.ref, func(claim *resourceapi.ResourceClaim) { a.follow(ctx, claim) })
		})
	}
}

// follow takes note of what has become of a claim, unless that was before what is known: a watch
// that broke may tell it again. One that is allocated anew is taken in as by Prepare; if that
// cannot be, the old devices are given back all the same.
func (a *Agent) follow(ctx context.Context, claim *resourceapi.ResourceClaim) {
	a.mu.Lock()
	c := a.claims[claim.UID]
	if c == nil || isBefore(claim.ResourceVersion, c.version) {
		a.mu.Unlock()
		return
	}
	known, anew := c.version, claim.Status.Allocation != nil && len(claim.Status.ReservedFor) > 0 &&
		!isAllocated(c.record, claim, a.Driver)
	a.mu.Unlock()
	if anew {
		own, err := a.allocated(ctx, claim)
		if err == nil {
			_, err = a.admit(ctx, claim, own)
		}
		if err != nil {
			a.disown(c, known, err)
		}
		return
	}
	if pods, err := cniconfig.Pods(claim); err == nil || len(claim.Status.ReservedFor) == 0 {
		a.Reserve(claim.UID, pods)
	}
}

// disown has the devices of a claim given back, unless the kubelet has prepared it meanwhile.
func (a *Agent) disown(c *claim, known string, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.version == known {
		a.Log.Error("a claim that is allocated anew cannot be prepared: its former devices are given back", "claim", c.ref, "error", why)
		c.forget = true
		a.rouse(c)
	}
}

func isBefore(version, known string) bool {
	order, err := resourceversion.CompareResourceVersion(version, known)
	return err == nil && order < 0
}

// isAllocated says whether a record is of what is allocated to a claim now.
func isAllocated(record *state.Claim, claim *resourceapi.ResourceClaim, driver string) bool {
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
