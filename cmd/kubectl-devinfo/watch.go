package main

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"devinfo-cni.io/pkg/cluster"
)

// watch prints the list, and then those of each pod that has others than before, until ctx
// ends. Where the API server ends a watch, as it does after some minutes, another begins.
func (t *tool) watch(ctx context.Context, namespace string, list []cluster.Attachment) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	last := map[types.NamespacedName][]cluster.Attachment{}
	for _, a := range list {
		name := types.NamespacedName{Namespace: a.Namespace, Name: a.Pod}
		last[name] = append(last[name], a)
	}
	if err := t.print(list); err != nil {
		return err
	}
	for {
		events, err := client.CoreV1().Pods(namespace).Watch(ctx, t.chosen())
		if err != nil {
			return err
		}
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				return apierrors.FromObject(event.Object)
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
			if event.Type == watch.Deleted {
				delete(last, name)
				continue
			}
			now, err := t.ofPod(ctx, client, pod)
			if err != nil {
				return err
			}
			if len(now) > 0 && !reflect.DeepEqual(now, last[name]) {
				if err := t.print(now); err != nil {
					return err
				}
			}
			last[name] = now
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}
