package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"devinfo-cni.io/pkg/cluster"
)

// slicedNodes is of how many nodes slices are read at most.
const slicedNodes = 50

// attachments are those of the pods of a namespace, "" for all, that the flags choose.
func (t *tool) attachments(ctx context.Context, namespace string) ([]cluster.Attachment, error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	view := new(cluster.View)
	err = each(ctx, t.chosen(), func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods(namespace).List(ctx, o)
	}, view.Pod)
	if err != nil {
		return nil, err
	}
	if t.node != "" {
		err = t.claimsByName(ctx, client, view)
	} else if len(view.Claims()) > 0 {
		err = t.readable("resource claims are left out", each(ctx, metav1.ListOptions{}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.ResourceV1().ResourceClaims(namespace).List(ctx, o)
		}, view.Claim))
	}
	if err != nil {
		return nil, err
	}
	return t.completed(ctx, client, view)
}

// chosen are the pods that the flags choose.
func (t *tool) chosen() metav1.ListOptions {
	options := metav1.ListOptions{LabelSelector: t.selector}
	if t.node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", t.node).String()
	}
	return options
}

// ofPod are the attachments of one pod.
func (t *tool) ofPod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) ([]cluster.Attachment, error) {
	view := new(cluster.View)
	view.Pod(pod)
	if err := t.claimsByName(ctx, client, view); err != nil {
		return nil, err
	}
	return t.completed(ctx, client, view)
}

// claimsByName reads the claims that the pods have, one by one: there are few.
func (t *tool) claimsByName(ctx context.Context, client kubernetes.Interface, view *cluster.View) error {
	for _, name := range view.Claims() {
		claim, err := t.claim(ctx, client, name)
		if apierrors.IsNotFound(err) { // deleted since
			continue
		}
		if apierrors.IsForbidden(err) {
			return t.readable("resource claims are left out", err)
		}
		if err != nil {
			return err
		}
		view.Claim(claim)
	}
	return nil
}

func (t *tool) claim(ctx context.Context, client kubernetes.Interface, name types.NamespacedName) (*resourceapi.ResourceClaim, error) {
	return client.ResourceV1().ResourceClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
}

// completed adds to the attachments what slices and nodes tell of their devices.
func (t *tool) completed(ctx context.Context, client kubernetes.Interface, view *cluster.View) ([]cluster.Attachment, error) {
	nodes := view.Nodes()
	if len(nodes) > slicedNodes {
		t.note("PF, representor and RDMA device of claims are not shown: they are on %d nodes, and the slices of %d are read at most; --node or a pod's name chooses", len(nodes), slicedNodes)
		nodes = nil
	}
	for _, node := range nodes {
		if err := t.slices(ctx, client, node, view); err != nil {
			return nil, err
		}
	}
	list := view.List()
	return list, t.askNodes(ctx, list)
}

// slices reads what a node has published of its devices.
func (t *tool) slices(ctx context.Context, client kubernetes.Interface, node string, view *cluster.View) error {
	chosen := fields.Set{resourceapi.ResourceSliceSelectorNodeName: node}
	if drivers := view.Drivers(); len(drivers) == 1 {
		chosen[resourceapi.ResourceSliceSelectorDriver] = drivers[0]
	}
	return t.readable("of claims only the devices that their status names are shown", each(ctx, metav1.ListOptions{FieldSelector: chosen.AsSelector().String()},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.ResourceV1().ResourceSlices().List(ctx, o)
		}, view.Slice))
}

// readable makes a warning of what may not be read, and nothing of what the cluster does not
// know: there are no claims before Kubernetes 1.34.
func (t *tool) readable(without string, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		fmt.Fprintf(t.ErrOut, "warning: %s: %v\n", without, err)
		return nil
	}
	return err
}

func (t *tool) note(format string, args ...any) { fmt.Fprintf(t.ErrOut, "note: "+format+"\n", args...) }

// each lists in portions, for clusters of many thousand pods.
func each[T any](ctx context.Context, options metav1.ListOptions, page pager.ListPageFunc, take func(*T)) error {
	return pager.New(page).EachListItem(ctx, options, func(object runtime.Object) error {
		item, ok := any(object).(*T)
		if !ok {
			return errors.New("the API server did not send the list that was asked for")
		}
		take(item)
		return nil
	})
}
