package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/pkg/ctl/commandline"
)

func (t *tool) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"pods"},
		Short:   "the attachments of all pods of a namespace (the default command)",
		Example: "  kubectl devinfo list -n shop\n  kubectl devinfo list -A --node n1 -o wide\n" +
			"  kubectl devinfo list -l app=dpdk -o jsonpath='{.attachments[*].device}'",
		RunE: t.list,
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
	list, err := t.attachments(cmd.Context(), t.namespace, "")
	if err != nil {
		return err
	}
	if len(list) == 0 && !t.structured() {
		fmt.Fprintln(t.ErrOut, "No attachments found: no pod has a network-status with secondary networks, or a claim with network data. kubectl devinfo pod NAME says what a pod waits for.")
		return nil
	}
	return t.print(list)
}

func (t *tool) holderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "holder DEVICE",
		Short: "find the pods that have a device: a PCI address, representor, RDMA or vDPA device, socket, MAC or IP",
		Long: `Lists the attachments of all namespaces that have a device. DEVICE is a PCI address (the address of a PF
also finds its VFs), a representor, an RDMA or vDPA device, a socket, a MAC or IP address. Use --node with a PCI
address, because most nodes have a device with that address. Only that node is queried for devices that are
not in the API, and for the device of another interface of the node, also by its altname.

A pod without a network for its device, which it has from a device plugin or another DRA driver, is not found.
"kubectl devinfo offered NODE" names it, if a rule of cni-dra-driver selects the device.

Exit code 1: no pod has the device. Exit code 3: no pod has it, and some nodes were not queried.`,
		Example: "  kubectl devinfo holder 03:00.5 --node n1\n  kubectl devinfo holder eth4",
		Args:    commandline.Args(1, "DEVICE"),
		RunE:    t.holder,
	}
	t.printFlags(cmd)
	t.nodeFlag(cmd, "on this node only")
	return cmd
}

func (t *tool) holder(cmd *cobra.Command, args []string) error {
	list, err := t.attachments(cmd.Context(), metav1.NamespaceAll, t.node)
	if err != nil {
		return err
	}
	found := cluster.Holders(list, args[0])
	other := func(a cluster.Network) bool { return !strings.EqualFold(a.Representor, args[0]) }
	if t.node != "" && !slices.ContainsFunc(found, other) { // programs rename representors
		found = t.byInterface(cmd.Context(), list, found, args[0])
	}
	if unclear := problems(list); len(unclear) > 0 && t.output == "" {
		t.note("a network of %s has no known device; kubectl devinfo pod %s shows the problem", clierr.Few(unclear, shown), unclear[0])
	}
	t.allNamespaces = true // the table needs the column of namespaces
	switch {
	case len(found) == 0 && t.partial:
		ask := "query the node that may have it with --node NODE"
		if t.node != "" {
			ask = "correct what the notes name, and ask again"
		}
		return clierr.For(fmt.Errorf("no pod among the queried ones has %s", args[0]), cmp.Or(view.Misspelt(args[0]), ask))
	case len(found) == 0 && view.Misspelt(args[0]) != "":
		return clierr.Misuse(view.Misspelt(args[0]), "%s: no device has such an address", args[0])
	case len(found) == 0:
		return t.none("No pod has %s, except perhaps a pod whose network does not use devinfo.\n", args[0])
	}
	return t.print(found)
}

// none prints a message that there is nothing to show. In a format for programs it also prints an empty list.
func (t *tool) none(format string, args ...any) error {
	fmt.Fprintf(t.ErrOut, format, args...)
	if t.structured() {
		return cmp.Or[error](t.print([]cluster.Network{}), clierr.ErrFound)
	}
	return clierr.ErrFound
}

func (t *tool) podCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pod [NAMESPACE/]NAME",
		Short: "show the attachments of one pod, with their complete device information, or what it waits for",
		Example: "  kubectl devinfo pod shop/dpdk-0\n  kubectl devinfo pod dpdk-0 -o jsonpath='{.attachments[0].device}'\n" +
			"  kubectl devinfo holder 03:00.5 --node n1 -o name | xargs kubectl devinfo pod -n shop",
		Args: commandline.Args(1, "NAME"),
		RunE: t.pod,

		ValidArgsFunction: t.complete("pods", false),
	}
	t.printFlags(cmd)
	return cmd
}

func (t *tool) pod(cmd *cobra.Command, args []string) error {
	namespace, name := t.namespace, strings.TrimPrefix(args[0], "pod/")
	if of, its, qualified := strings.Cut(name, "/"); qualified {
		namespace, name = of, its
	}
	pod, err := t.api.CoreV1().Pods(namespace).Get(cmd.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if cluster.Ended(pod) {
		return t.none("Pod %s has ended (%s), so it has no attachments.\n", name, pod.Status.Phase)
	}
	t.withRecords = true
	joined := cluster.View{Waiting: true}
	joined.Pod(pod)
	list, err := t.attachmentsOf(cmd.Context(), &joined, namespace, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return t.none("Pod %s has no attachments: no network-status with secondary networks, and no claim with network data.\n", name)
	}
	t.output = cmp.Or(t.output, "paragraphs")
	return t.print(list)
}
