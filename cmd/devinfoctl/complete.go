package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/ctl/node"
)

func (t *tool) completeAttachments(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(args, func(a node.Attachment) []string {
		if a.ContainerID == "" {
			return []string{a.Pod, a.Network}
		}
		return []string{a.Pod, a.Network, a.String()}
	})
}

func (t *tool) completeNamespaces(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(args, func(a node.Attachment) []string {
		namespace, _, _ := strings.Cut(a.Pod, "/")
		return []string{namespace}
	})
}

// complete gives the names of all attachments, sorted. What cannot be read has none.
func (t *tool) complete(args []string, names func(node.Attachment) []string) (all []string, _ cobra.ShellCompDirective) {
	h, err := t.host()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, _ := h.Recorded()
	for _, a := range list {
		all = append(all, names(a)...)
	}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(name string) bool { return name == "" })
	return all, cobra.ShellCompDirectiveNoFileComp
}

func (t *tool) completeDevices(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := t.host()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return h.DeviceNames(), cobra.ShellCompDirectiveNoFileComp
}
