package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/workqueue"

	"devinfo-cni.io/pkg/cluster"
	"devinfo-cni.io/pkg/ctl/remedy"
)

// The bounds of what is read.
const (
	portion     = 5000 // pods whose attachments are held at a time
	namedClaims = 50   // claims that are read by their names, and not by a list of all
	slicedNodes = 50   // nodes whose slices are read; if there are more, of none
	asked       = 8    // requests at a time, of things by their names
)

// A reading is one reading of the pods that the flags choose, and of what belongs to them.
type reading struct {
	*tool
	namespace string // "" = all
	view      cluster.View
	answers   map[string]answer // of agents, by node
	left      []string          // nodes whose agents were not asked
	unclear   []string          // pods whose devices could not be read

	portions  int  // taken
	allClaims bool // they have been read
	unsliced  bool // something is not shown for that
}

func (t *tool) reading(namespace string) *reading {
	return &reading{tool: t, namespace: namespace, answers: map[string]answer{}}
}

// attachments gives those of the pods of a namespace, "" for all, that the flags choose, a
// portion of the pods at a time, or all at once if there are few.
func (t *tool) attachments(ctx context.Context, namespace string, take func([]cluster.Network) error) error {
	r := t.reading(namespace)
	err := each(ctx, t.chosen(), func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list, err := t.api.CoreV1().Pods(namespace).List(ctx, o)
		if err == nil && o.Continue == "" {
			t.seen = list.ResourceVersion
		}
		return list, err
	}, func(pod *corev1.Pod) (err error) {
		if r.view.Pods() == t.portion {
			err = r.take(ctx, take, true)
		}
		r.view.Pod(pod)
		return err
	})
	if err == nil {
		err = r.take(ctx, take, r.portions > 0)
	}
	if err != nil {
		return err
	}
	if r.unsliced {
		t.note("PF, representor and RDMA device of some claims are not shown: slices are read of no node if there are more than %d, or more than %d pods; --node or a pod's name chooses", slicedNodes, t.portion)
	}
	return r.report(ctx)
}

// take completes a portion of the pods, and gives their attachments.
func (r *reading) take(ctx context.Context, to func([]cluster.Network) error, several bool) error {
	if err := r.readClaims(ctx); err != nil {
		return err
	}
	nodes := r.view.Nodes()
	if several || len(nodes) > slicedNodes {
		r.unsliced, nodes = r.unsliced || len(nodes) > 0, nil
	}
	for _, node := range nodes {
		if err := r.slices(ctx, node); err != nil {
			return err
		}
	}
	r.portions++
	list := r.view.Take()
	r.ask(ctx, list)
	for n := range list {
		if pod := list[n].Namespace + "/" + list[n].Pod; list[n].Problem != "" && !slices.Contains(r.unclear, pod) {
			r.unclear = append(r.unclear, pod)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return to(list)
}

// ofPod are the attachments of one pod.
func (t *tool) ofPod(ctx context.Context, pod *corev1.Pod) (list []cluster.Network, err error) {
	r := t.reading(pod.Namespace)
	r.view.Pod(pod)
	err = r.take(ctx, func(its []cluster.Network) error { list = its; return nil }, false)
	return list, cmp.Or(err, r.report(ctx))
}

// readClaims reads those of the pods: by their names if they are few, or a node's, whose number
// is bounded, and else all of the namespace.
func (r *reading) readClaims(ctx context.Context) error {
	names := r.view.Claims()
	if r.allClaims || len(names) == 0 {
		return nil
	}
	const without = "resource claims are left out"
	if r.portions == 0 && (r.node != "" || len(names) <= namedClaims) {
		return r.readable(without, r.claimsByName(ctx, names))
	}
	r.allClaims = true
	return r.readable(without, each(ctx, metav1.ListOptions{}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.api.ResourceV1().ResourceClaims(r.namespace).List(ctx, o)
	}, func(claim *resourceapi.ResourceClaim) error { r.view.Claim(claim); return nil }))
}

func (r *reading) claimsByName(ctx context.Context, names []types.NamespacedName) error {
	claims, errs := make([]*resourceapi.ResourceClaim, len(names)), make([]error, len(names))
	workqueue.ParallelizeUntil(context.Background(), asked, len(names), func(n int) { // ctx ends the requests, and all have an answer
		claims[n], errs[n] = r.api.ResourceV1().ResourceClaims(names[n].Namespace).Get(ctx, names[n].Name, metav1.GetOptions{})
	})
	for n, claim := range claims {
		if errs[n] == nil {
			r.view.Claim(claim)
		} else if !apierrors.IsNotFound(errs[n]) { // deleted since
			return errs[n]
		}
	}
	return nil
}

// chosen are the pods that the flags choose.
func (t *tool) chosen() metav1.ListOptions {
	options := metav1.ListOptions{LabelSelector: t.selector}
	if t.node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", t.node).String()
	}
	return options
}

// slices reads what a node has published of its devices.
func (r *reading) slices(ctx context.Context, node string) error {
	chosen := fields.Set{resourceapi.ResourceSliceSelectorNodeName: node}
	if drivers := r.view.Drivers(); len(drivers) == 1 {
		chosen[resourceapi.ResourceSliceSelectorDriver] = drivers[0]
	}
	return r.readable("of claims only the devices that their status names are shown", each(ctx, metav1.ListOptions{FieldSelector: chosen.AsSelector().String()},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return r.api.ResourceV1().ResourceSlices().List(ctx, o)
		}, func(s *resourceapi.ResourceSlice) error { r.view.Slice(s); return nil }))
}

// readable makes a warning of what may not be read, and nothing of what the cluster does not
// know: there are no claims before Kubernetes 1.34.
func (t *tool) readable(without string, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		t.partial = true
		fmt.Fprintf(t.ErrOut, "warning: %s: %v\n", without, err)
		return nil
	}
	return err
}

// note says why what is shown may not be all that there is.
func (t *tool) note(format string, args ...any) {
	t.partial = true
	fmt.Fprintf(t.ErrOut, "note: %s\n", remedy.Lines(fmt.Sprintf(format, args...)))
}

// each lists page by page, and holds three of them at most.
func each[T any](ctx context.Context, options metav1.ListOptions, page pager.ListPageFunc, take func(*T) error) error {
	pages := pager.New(page)
	pages.PageBufferSize = 1
	return pages.EachListItem(ctx, options, func(object runtime.Object) error {
		item, ok := any(object).(*T)
		if !ok {
			return errors.New("the API server did not send the list that was asked for")
		}
		return take(item)
	})
}
