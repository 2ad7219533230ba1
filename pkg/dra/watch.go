package dra

import (
	"context"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/cniconfig"
)

// The kubelet prepares a claim once, for the first pod that comes with it. Who else waits
// for it only the claim tells, in status.reservedFor. A claim from a template is its
// pod's alone, so only the others are watched.

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
		if _, watched := w.cancel[uid]; watched || !c.record.Shared || len(c.record.Attachments) == 0 {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		w.cancel[uid] = cancel
		w.running.Go(func() {
			a.Watch(ctx, c.ref, func(claim *resourceapi.ResourceClaim) {
				if pods, err := cniconfig.Pods(claim); err == nil || len(claim.Status.ReservedFor) == 0 {
					a.Reserve(uid, podsOf(pods))
				}
			})
		})
	}
}
