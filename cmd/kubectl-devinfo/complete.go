package main

import (
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func (t *tool) nodeFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&t.node, "node", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return t.completeNodes(cmd, nil, begun)
	})
}

func (t *tool) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(args, func(client kubernetes.Interface) (names []string, err error) {
		list, err := client.CoreV1().Nodes().List(cmd.Context(), metav1.ListOptions{})
		if err == nil {
			for _, n := range list.Items {
				names = append(names, n.Name)
			}
		}
		return names, err
	})
}

func (t *tool) completeNamespaces(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(nil, func(client kubernetes.Interface) (names []string, err error) {
		list, err := client.CoreV1().Namespaces().List(cmd.Context(), metav1.ListOptions{})
		if err == nil {
			for _, n := range list.Items {
				names = append(names, n.Name)
			}
		}
		return names, err
	})
}

// completePods completes the pods that have attachments.
func (t *tool) completePods(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(args, func(kubernetes.Interface) (names []string, err error) {
		namespace, err := t.namespace()
		if err != nil {
			return nil, err
		}
		t.fromNodes = fromNever
		list, err := t.attachments(cmd.Context(), namespace)
		for _, a := range list {
			if len(names) == 0 || names[len(names)-1] != a.Pod {
				names = append(names, a.Pod)
			}
		}
		return names, err
	})
}

func (t *tool) complete(args []string, list func(kubernetes.Interface) ([]string, error)) (names []string, _ cobra.ShellCompDirective) {
	client, err := t.client()
	if err == nil && len(args) == 0 {
		names, err = list(client)
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
