package main

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func (t *tool) nodeFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&t.node, "node", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return t.completeNodes(cmd, nil, begun)
	})
}

func (t *tool) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(args, func() (runtime.Object, error) {
		return t.api.CoreV1().Nodes().List(cmd.Context(), metav1.ListOptions{})
	})
}

func (t *tool) completeNamespaces(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(nil, func() (runtime.Object, error) {
		return t.api.CoreV1().Namespaces().List(cmd.Context(), metav1.ListOptions{})
	})
}

func (t *tool) completePods(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(args, func() (runtime.Object, error) {
		namespace, err := t.namespace()
		if err != nil {
			return nil, err
		}
		return t.api.CoreV1().Pods(namespace).List(cmd.Context(), metav1.ListOptions{})
	})
}

// complete returns the names of the objects of a list, for the first argument.
func (t *tool) complete(args []string, list func() (runtime.Object, error)) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if t.connect() != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	objects, err := list()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	_ = meta.EachListItem(objects, func(o runtime.Object) error {
		names = append(names, o.(metav1.Object).GetName())
		return nil
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
