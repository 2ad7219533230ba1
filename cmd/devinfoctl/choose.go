package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// A naming is a way in which the command line names attachments. If one is set, the name
// must mean only one such thing.
type naming struct {
	named func(a attachment, name string) bool
	one   func(a attachment) string // nil = it may mean several
	what  string
	more  string
}

// namings are tried in this order; the first that finds something counts.
var namings = []naming{
	{named: byPod, one: func(a attachment) string { return a.Pod }, what: "pods", more: "give the namespace too"},
	{named: func(a attachment, name string) bool { return a.Network == name }},
	{named: byContainer, one: func(a attachment) string { return a.ContainerID }, what: "containers", more: "give more of the container's ID"},
}

// chosen are the attachments that the command line names.
func chosen(list []attachment, name string) ([]attachment, error) {
	for _, n := range namings {
		var found []attachment
		var of, names []string
		for _, a := range list {
			if !n.named(a, name) {
				continue
			}
			found, names = append(found, a), append(names, a.String())
			if n.one != nil && !slices.Contains(of, n.one(a)) {
				of = append(of, n.one(a))
			}
		}
		if n.what == "pods" {
			names = of
		}
		if len(of) > 1 {
			return nil, usage(n.more+": "+strings.Join(names, ", "), "%s: is ambiguous: %d %s match", name, len(of), n.what)
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, blind(fmt.Errorf("%s: no such pod, network, container or attachment", name), "devinfoctl list shows them")
}

// byPod takes a pod's name with or without its namespace, and with it an interface.
func byPod(a attachment, name string) bool {
	_, pod, there := strings.Cut(a.Pod, "/")
	return there && (name == pod || name == a.Pod || name == a.Pod+"/"+a.IfName)
}

// byContainer takes NETWORK/CONTAINER/INTERFACE, NETWORK/CONTAINER or CONTAINER, the
// container's ID cut or not.
func byContainer(a attachment, name string) bool {
	parts := strings.SplitN(name, "/", 3)
	switch len(parts) {
	case 1:
		return name != "" && strings.HasPrefix(a.ContainerID, name)
	case 2:
		parts = append(parts, a.IfName)
	}
	return a.Network == parts[0] && strings.HasPrefix(a.ContainerID, parts[1]) && a.IfName == parts[2]
}

// completeAttachments completes pods, networks and attachments.
func (t *tool) completeAttachments(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(args, func(a attachment) []string {
		if a.ContainerID == "" {
			return []string{a.Pod, a.Network}
		}
		return []string{a.Pod, a.Network, a.String()}
	})
}

// completeNamespaces completes the namespace of a pod.
func (t *tool) completeNamespaces(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(args, func(a attachment) []string {
		namespace, _, _ := strings.Cut(a.Pod, "/")
		return []string{namespace}
	})
}

// complete gives the names of all attachments, sorted. What cannot be read has none.
func (t *tool) complete(args []string, names func(attachment) []string) (all []string, _ cobra.ShellCompDirective) {
	h, err := t.host()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, _ := h.attachments()
	for _, a := range list {
		all = append(all, names(a)...)
	}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(name string) bool { return name == "" })
	return all, cobra.ShellCompDirectiveNoFileComp
}
