package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"devinfo-cni.io/pkg/cluster"
)

func (t *tool) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"pods"},
		Short:   "the attachments of all pods of a namespace (the default command)",
		Args:    cobra.NoArgs,
		RunE:    t.list,
	}
	t.listFlags(cmd)
	return cmd
}

func (t *tool) listFlags(cmd *cobra.Command) {
	t.printFlags(cmd)
	cmd.Flags().BoolVarP(&t.allNamespaces, "all-namespaces", "A", false, "all namespaces")
	cmd.Flags().StringVarP(&t.selector, "selector", "l", "", "labels of pods, such as app=dpdk")
	cmd.Flags().StringVar(&t.node, "node", "", "the pods of this node only")
}

func (t *tool) list(cmd *cobra.Command, _ []string) error {
	list, err := t.attachments(cmd.Context(), t.namespace)
	if err != nil {
		return err
	}
	if len(list) == 0 && t.output != "json" && t.output != "yaml" {
		fmt.Fprintln(t.ErrOut, "No attachments found: no pod has a network-status with secondary networks, or a claim with network data.")
		return nil
	}
	return t.print(list)
}

// namespace is that of kubectl, or "" for all.
func (t *tool) namespace() (string, error) {
	if t.allNamespaces {
		return metav1.NamespaceAll, nil
	}
	namespace, _, err := t.config.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// attachments are those of the pods that the flags choose.
func (t *tool) attachments(ctx context.Context, in func() (string, error)) ([]cluster.Attachment, error) {
	namespace, err := in()
	if err != nil {
		return nil, err
	}
	options := metav1.ListOptions{LabelSelector: t.selector}
	if t.node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", t.node).String()
	}
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	err = each(ctx, options, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods(namespace).List(ctx, o)
	}, func(pod *corev1.Pod) { pods = append(pods, *pod) })
	if err != nil {
		return nil, err
	}
	claims, err := t.claims(ctx, namespace)
	if err != nil {
		return nil, err
	}
	slices, err := t.slices(ctx, len(claims) > 0)
	if err != nil {
		return nil, err
	}
	return cluster.List(pods, claims, slices), nil
}

// claims are those of a namespace, "" for all; none before Kubernetes 1.34.
func (t *tool) claims(ctx context.Context, namespace string) (list []resourceapi.ResourceClaim, err error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	err = each(ctx, metav1.ListOptions{}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.ResourceV1().ResourceClaims(namespace).List(ctx, o)
	}, func(claim *resourceapi.ResourceClaim) { list = append(list, *claim) })
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		fmt.Fprintln(t.ErrOut, "warning: resource claims are left out:", err)
		return nil, nil
	}
	return list, err
}

// slices are what the nodes have published of the devices of claims, if there are any.
func (t *tool) slices(ctx context.Context, claims bool) (list []resourceapi.ResourceSlice, err error) {
	if !claims {
		return nil, nil
	}
	options := metav1.ListOptions{}
	if t.node != "" {
		options.FieldSelector = fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorNodeName, t.node).String()
	}
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	err = each(ctx, options, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.ResourceV1().ResourceSlices().List(ctx, o)
	}, func(s *resourceapi.ResourceSlice) { list = append(list, *s) })
	if apierrors.IsForbidden(err) {
		fmt.Fprintln(t.ErrOut, "warning: of claims only the devices that their status names are shown:", err)
		return nil, nil
	}
	return list, err
}

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
