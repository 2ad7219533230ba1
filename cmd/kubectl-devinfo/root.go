package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/ctl/commandline"
)

// A tool is what the commands share.
type tool struct {
	genericiooptions.IOStreams
	config *genericclioptions.ConfigFlags // of kubectl: --kubeconfig, --context, -n, ...
	client func() (kubernetes.Interface, error)

	output         string
	noHeaders      bool
	allNamespaces  bool
	selector       string
	node           string
	agentNamespace string
}

const rootHelp = `Shows which device is behind each network interface of pods: PCI address, PF,
representor, RDMA device, vDPA device or socket; from what Multus wrote into the
network-status of pods, and DRA drivers into the status of resource claims.

"capture" and "doctor" run devinfoctl on a node, in the pod of devinfo-agent there.`

const rootExample = `  kubectl devinfo -A                          # all pods
  kubectl devinfo pod dpdk-0                  # all that is known of one
  kubectl devinfo who 0000:03:00.5 --node n1  # whose device it is
  kubectl devinfo doctor n1                   # what is wrong on a node`

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	t := &tool{IOStreams: streams, config: genericclioptions.NewConfigFlags(true)}
	t.client = func() (kubernetes.Interface, error) {
		config, err := t.config.ToRESTConfig()
		if err != nil {
			return nil, err
		}
		return kubernetes.NewForConfig(config)
	}
	return t.root()
}

func (t *tool) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-devinfo",
		Short:         "the devices behind the network interfaces of pods",
		Long:          rootHelp,
		Example:       rootExample,
		Version:       build.Read().String(),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl devinfo"},
		RunE:          t.list,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("kubectl-devinfo {{.Version}}\n")
	root.SetIn(t.In)
	root.SetOut(t.Out)
	root.SetErr(t.ErrOut)
	t.config.AddFlags(root.PersistentFlags())
	t.listFlags(root)
	cobra.EnableCommandSorting = false
	root.AddCommand(t.listCommand(), t.podCommand(), t.whoCommand(), t.doctorCommand(), t.captureCommand(), versionCommand())
	commandline.Strict(root)
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "what this program was built from", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "kubectl-devinfo", build.Read()) },
	}
}
