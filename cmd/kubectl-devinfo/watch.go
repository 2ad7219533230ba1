package main

import (
	"context"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"devinfo-cni.io/pkg/cluster"
)

// watch prints the list, and then those of each pod that has others than before, until ctx
// ends. Where the API server ends a watch, as it does after some minutes, another goes on where it
// was; only if it does not remember that any more, all pods come once more.
func (t *tool) watch(ctx context.Context, namespace string, list []cluster.Network) error {
	last := map[types.NamespacedName][]cluster.Network{}
	for _, a := range list {
		name := types.NamespacedName{Namespace: a.Namespace, Name: a.Pod}
		last[name] = append(last[name], a)
	}
	if err := t.print(list); err != nil {
		return err
	}
	for {
		options := t.chosen()
		options.ResourceVersion, options.AllowWatchBookmarks = t.seen, true
		events, err := t.api.CoreV1().Pods(namespace).Watch(ctx, options)
		if err == nil {
			err = t.follow(ctx, events, last)
			events.Stop()
		}
		switch {
		case ctx.Err() != nil: // whatever the stream of events makes of that
			return nil
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			t.seen = ""
		case err != nil:
			return err
		}
	}
}

// follow does so with one watch, until that ends.
func (t *tool) follow(ctx context.Context, events watch.Interface, last map[types.NamespacedName][]cluster.Network) error {
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		t.seen = pod.ResourceVersion
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		switch event.Type {
		case watch.Bookmark:
			continue
		case watch.Deleted:
			delete(last, name)
			continue
		}
		now, err := t.ofPod(ctx, pod)
		if err != nil {
			return err
		}
		if len(now) > 0 && !reflect.DeepEqual(now, last[name]) {
			if err := t.print(slices.Clone(now)); err != nil {
				return err
			}
		}
		last[name] = now
	}
	return nil
}
