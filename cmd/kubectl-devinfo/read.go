package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/validate"
)

// attachments returns the attachments of the pods that the flags select in a namespace, or in all if it is "".
// See attachmentsOf for node.
func (t *tool) attachments(ctx context.Context, namespace, node string) ([]cluster.Network, error) {
	var view cluster.View
	chosen := metav1.ListOptions{LabelSelector: t.selector}
	if t.node != "" {
		chosen.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", t.node).String()
	}
	done := commandline.Progress(t.rawErr, "reading pods")
	err := each(ctx, chosen, t.api.CoreV1().Pods(namespace).List, view.Pod)
	if done(); err != nil {
		return nil, err
	}
	return t.attachmentsOf(ctx, &view, namespace, node)
}

// attachmentsOf returns the attachments of the pods in the view. It adds data of their claims and of the agent on the
// node that the command line names ("" = none). It prints notes about missing data.
func (t *tool) attachmentsOf(ctx context.Context, view *cluster.View, namespace, node string) ([]cluster.Network, error) {
	if err := t.readClaims(ctx, view, namespace); err != nil {
		return nil, err
	}
	list := view.Attachments()
	t.ask(ctx, list, node)
	t.partial = t.partial || len(problems(list)) > 0
	t.networks(ctx, list)
	return list, ctx.Err()
}

// problems returns the pods of attachments with a problem and without a device.
func problems(list []cluster.Network) (pods []string) {
	for n := range list {
		if list[n].Problem != "" && list[n].Device.Device == "" {
			pods = append(pods, list[n].Namespace+"/"+list[n].Pod)
		}
	}
	return slices.Compact(pods)
}

// readClaims reads the claims of the pods. It reads them by name if they are few or on one node, else it lists
// the namespace.
func (t *tool) readClaims(ctx context.Context, view *cluster.View, namespace string) (err error) {
	const few = 50
	names := view.Claims()
	defer commandline.Progress(t.rawErr, "reading claims")()
	switch {
	case len(names) == 0:
		return nil
	case t.node != "" || len(names) <= few:
		err = t.claimsByName(ctx, view, names)
	default:
		err = each(ctx, metav1.ListOptions{}, t.api.ResourceV1().ResourceClaims(namespace).List, view.Claim)
	}
	switch {
	case apierrors.IsNotFound(err): // a cluster without claims, before Kubernetes 1.34
		return nil
	case apierrors.IsForbidden(err):
		t.partial = true
		fmt.Fprintf(t.ErrOut, "warning: cannot read resource claims, so devices of claims are not shown: %v\n", err)
		return nil
	}
	return err
}

func (t *tool) claimsByName(ctx context.Context, view *cluster.View, names []types.NamespacedName) error {
	for _, name := range names {
		claim, err := t.api.ResourceV1().ResourceClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			view.Claim(claim)
		case apierrors.IsNotFound(err): // not made yet, or deleted after its pod was listed
			view.NoClaim(name)
		default:
			return err
		}
	}
	return nil
}

func (t *tool) note(format string, args ...any) {
	t.partial = true
	fmt.Fprintf(t.ErrOut, "note: %s\n", fmt.Sprintf(format, args...))
}

// each lists page by page and keeps at most three pages in memory.
func each[L runtime.Object, T any](
	ctx context.Context, options metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error), take func(*T),
) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) })
	pages.PageBufferSize = 1
	return pages.EachListItem(ctx, options, func(object runtime.Object) error {
		take(any(object).(*T)) // the client decodes only lists of L
		return nil
	})
}

func (t *tool) nodeFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&t.node, "node", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("node", t.complete("nodes", true))
}

// complete returns a completion of the names of a resource, for a flag or for the first argument.
func (t *tool) complete(resource string, flag bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 && !flag {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if err := t.connect(); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		namespace := ""
		if resource == "pods" {
			namespace = t.namespace
		}
		objects, err := t.api.CoreV1().RESTClient().Get().Resource(resource).Namespace(namespace).Do(cmd.Context()).Get()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		_ = meta.EachListItem(objects, func(o runtime.Object) error {
			names = append(names, o.(metav1.Object).GetName())
			return nil
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// networks explains attachments without a device. It sets the problem to the finding of devinfoctl validate in the
// network, followed by the reason that the node has on record. It reads at most 50 networks.
func (t *tool) networks(ctx context.Context, list []cluster.Network) {
	defer commandline.Progress(t.rawErr, "reading networks")()
	findings := map[validate.NetworkName]found{}
	for n := range list {
		a := &list[n]
		if a.Device.Device != "" || !a.FromNode && !a.Deviceless() && !a.Waits {
			continue
		}
		names, ok := validate.Networks(a.Network, a.Namespace) // several only of a pod that waits
		if !ok && a.Waits {
			a.Problem = validate.Rules.Of("networks").String()
		}
		for _, name := range names {
			if _, known := findings[name]; !known && len(findings) < 50 {
				network, err := validated(ctx, t.api, name)
				if network.absent = apierrors.IsNotFound(err); err != nil && !network.absent {
					fmt.Fprintf(t.ErrOut, "warning: cannot validate networks: %s\n", err.Error())
					return
				}
				findings[name] = network
			}
			if explain(a, name, findings[name]) {
				break
			}
		}
	}
}

// explain sets the problem of an attachment without a device, and reports whether its network has one.
func explain(a *cluster.Network, name validate.NetworkName, network found) bool {
	at, finding := name.String(), network.finding
	ours := network.ours && !a.Waits
	missing := strings.Contains(network.resource, "/") && !slices.Contains(a.Requests, network.resource) // without a domain nothing can request it
	switch {
	case missing && (a.Deviceless() || a.Waits):
		a.Problem = validate.Rules.Of("not-requested", "resource", network.resource, "network", at, "unless", "").String()
	case a.Waits && network.absent: // that of a pod that has started was deleted since
		a.Problem = cluster.Problem("no-network", "network", at)
	case finding != nil && (ours || a.Waits && !finding.Warning):
		reason := a.Problem
		if a.Problem = cluster.Problem("network", "network", at, "finding", finding.String()); reason != "" && !a.Waits {
			a.Problem += "; node " + a.Node + ": " + reason
		}
	case ours && finding == nil && a.Problem == "" && !a.NotAsked:
		a.Problem = cluster.Problem("no-record", "node", a.Node)
	default:
		return false
	}
	return true
}

// found is what validate knows of a network.
type found struct {
	finding  *validate.Finding // the first error in it, else the first warning; nil = none
	ours     bool              // it contains devinfo
	resource string            // whose device Multus passes to it; "" = none
	absent   bool              // it does not exist
}

// validated validates a network. Its name comes from an annotation and may be any text.
func validated(ctx context.Context, api kubernetes.Interface, name validate.NetworkName) (found, error) {
	if name.Namespace == "" || name.Name == "" || len(content.IsPathSegmentName(name.Namespace))+len(content.IsPathSegmentName(name.Name)) > 0 {
		return found{}, nil
	}
	text, err := api.CoreV1().RESTClient().Get().AbsPath("/apis/k8s.cni.cncf.io/v1/namespaces", name.Namespace, "network-attachment-definitions", name.Name).DoRaw(ctx)
	if err != nil {
		return found{}, err
	}
	var is found
	docs := validate.Parse(name.Name, text)
	validate.Checker{}.Check(docs, validate.CNIConfig)
	for _, d := range docs {
		is.ours, is.resource = d.Skipped == "", validate.ResourceOf(d)
		if at := max(0, slices.IndexFunc(d.Findings, func(f validate.Finding) bool { return !f.Warning })); at < len(d.Findings) {
			is.finding = &d.Findings[at]
		}
	}
	return is, nil
}
