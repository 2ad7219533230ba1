package main

import (
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/ctl/commandline"
)

func (t *tool) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"pods"},
		Short:   "the attachments of all pods of a namespace (the default command)",
		Args:    commandline.Args(0),
		RunE:    t.list,
	}
	t.listFlags(cmd)
	return cmd
}

func (t *tool) listFlags(cmd *cobra.Command) {
	t.printFlags(cmd)
	cmd.Flags().BoolVarP(&t.allNamespaces, "all-namespaces", "A", false, "all namespaces")
	cmd.Flags().StringVarP(&t.selector, "selector", "l", "", "labels of pods, such as app=dpdk")
	t.nodeFlag(cmd, "the pods of this node only")
}

func (t *tool) list(cmd *cobra.Command, _ []string) error {
	namespace, err := t.namespace()
	if err != nil {
		return err
	}
	list, err := t.attachments(cmd.Context(), namespace, "")
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
