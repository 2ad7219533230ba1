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
	return t.complete(args, func() ([]string, error) {
		return namesOf(t.api.CoreV1().Nodes().List(cmd.Context(), metav1.ListOptions{}))
	})
}

func (t *tool) completeNamespaces(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(nil, func() ([]string, error) {
		return namesOf(t.api.CoreV1().Namespaces().List(cmd.Context(), metav1.ListOptions{}))
	})
}

// namesOf are those of the objects of a list.
func namesOf(list runtime.Object, err error) (names []string, _ error) {
	if err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		names = append(names, o.(metav1.Object).GetName())
		return nil
	})
	return names, err
}

func (t *tool) completePods(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.complete(args, func() ([]string, error) {
		namespace, err := t.namespace()
		if err != nil {
			return nil, err
		}
		return namesOf(t.api.CoreV1().Pods(namespace).List(cmd.Context(), metav1.ListOptions{}))
	})
}

func (t *tool) complete(args []string, list func() ([]string, error)) (names []string, _ cobra.ShellCompDirective) {
	err := t.connect()
	if err == nil && len(args) == 0 {
		names, err = list()
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
