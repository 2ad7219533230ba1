package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"devinfo-cni.io/pkg/cluster"
	"devinfo-cni.io/pkg/ctl/clierr"
	"devinfo-cni.io/pkg/ctl/validate"
)

// maxNetworks limits how many NetworkAttachmentDefinitions one command reads.
const maxNetworks = 50

// networks explains attachments without a device. It sets the problem to the finding of devinfoctl validate in the
// network, followed by the reason that the node has on record.
func (t *tool) networks(ctx context.Context, list []cluster.Network) {
	findings := map[types.NamespacedName]string{}
	for n := range list {
		a := &list[n]
		if a.Device.Device != "" || !a.FromNode && !a.Deviceless() {
			continue
		}
		name := types.NamespacedName{Namespace: a.Namespace, Name: a.Network}
		if namespace, network, qualified := strings.Cut(a.Network, "/"); qualified {
			name = types.NamespacedName{Namespace: namespace, Name: network}
		}
		if _, known := findings[name]; !known && len(findings) < maxNetworks {
			finding, err := validated(ctx, t.api, name)
			if apierrors.IsForbidden(err) {
				fmt.Fprintf(t.ErrOut, "warning: cannot validate networks: %s\n", clierr.Lines(err.Error()))
				return
			}
			findings[name] = finding
		}
		switch finding := findings[name]; {
		case finding != noFinding && finding != "":
			reason := a.Problem
			if a.Problem = "network " + name.String() + ": " + finding; reason != "" {
				a.Problem += "; node " + a.Node + ": " + reason
			}
		case finding == noFinding && a.Problem == "" && !a.NotAsked:
			a.Problem = "node " + a.Node + " has no record of a device for it; the container runtime's log there has the warnings of the plugin devinfo"
		}
	}
}

// noFinding is the finding for a valid network with devinfo.
const noFinding = "valid"

// validated returns the first error that validate finds in a network, else the first warning, else
// [noFinding]. It returns "" if the network cannot be read or does not contain devinfo. The name comes from an
// annotation and may be any text.
func validated(ctx context.Context, api kubernetes.Interface, name types.NamespacedName) (string, error) {
	if name.Namespace == "" || name.Name == "" || len(content.IsPathSegmentName(name.Namespace))+len(content.IsPathSegmentName(name.Name)) > 0 {
		return "", nil
	}
	text, err := api.CoreV1().RESTClient().Get().AbsPath("/apis/k8s.cni.cncf.io/v1/namespaces", name.Namespace, "network-attachment-definitions", name.Name).DoRaw(ctx)
	if err != nil {
		return "", err
	}
	docs := validate.Parse(name.String(), text)
	validate.Checker{}.Check(docs, validate.CNIConfig)
	if len(docs) == 0 || docs[0].Skipped != "" {
		return "", nil
	}
	d := docs[0]
	if len(d.Findings) == 0 {
		return noFinding, nil
	}
	first := max(0, slices.IndexFunc(d.Findings, func(f validate.Finding) bool { return !f.Warning }))
	return d.Findings[first].String(), nil
}
