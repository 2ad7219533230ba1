// Kubectl-devinfo shows the devices behind the network interfaces of pods in the whole cluster. It reads API
// objects (see package cluster), and runs devinfoctl in the agents' pods for devices that are not in the API.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/commandline"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	t := newTool(streams)
	root := t.root()
	if filepath.Base(os.Args[0]) == "kubectl_complete-devinfo" { // kubectl runs a plugin by this name to complete its arguments
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	os.Exit(t.report(commandline.Run(root)))
}

// report prints an error and returns the exit code. If devinfoctl ran on a node, that is its exit code.
func (t *tool) report(err error) int {
	if remote, is := errors.AsType[exec.CodeExitError](err); is {
		return remote.Code
	}
	if u, is := errors.AsType[*url.Error](err); is && t.started {
		//lint:ignore ST1005 the words of kubectl have a capital letter
		err = fmt.Errorf("Unable to connect to the server: %w", u.Err)
	}
	return clierr.Report(t.ErrOut, "kubectl devinfo", t.started, err)
}

type tool struct {
	genericiooptions.IOStreams                                // safe for a terminal
	raw, rawErr                io.Writer                      // standard output for files, and standard error for progress
	config                     *genericclioptions.ConfigFlags // kubectl's flags: --kubeconfig, --context, -n, ...
	api                        kubernetes.Interface           // set when a command starts
	namespace                  string                         // kubectl's namespace, or "" for all; likewise

	output         string                   // -o; "" = table; pod NAME without -o sets "paragraphs"
	template       printers.ResourcePrinter // of -o jsonpath and go-template; nil = another format
	noHeaders      bool
	allNamespaces  bool
	selector       string
	node           string
	agentNamespace string // "" = all namespaces
	withRecords    bool   // show what the node has on record also of devices that are in the API
	partial        bool   // some data could not be read
	silent         bool   // the node on the command line did not answer
	filled         bool   // its records are in the list

	exec    func(ctx context.Context, pod *corev1.Pod, command []string, streams remotecommand.StreamOptions) error
	started bool // the command line is valid
}

const rootHelp = `Shows the device behind each network interface of pods: PCI address, PF, representor, RDMA
device, vDPA device or socket.

The devices come from the network-status of pods, which Multus writes, and from the status of
resource claims, which DRA drivers write. Multus writes only devices of networks with a
resourceName. Other devices, such as memif and vhost-user sockets, are recorded on the nodes only.
"pod" and "holder --node" query that one node. A query needs the right to exec into the pods of
devinfo-agent, which is as good as root on their nodes. "-" stands for no device, and "?" for a
device on a node that was not queried.

"capture", "doctor", "offered" and "topology" run devinfoctl on a node, in the pod of
cni-dra-driver, or else in the pod of devinfo-agent.

Exit codes:
  0  success, and no problem found
  1  the pod has no attachments, no pod has the device, or doctor or offered found a problem
  2  the command line is invalid
  3  a query failed, the named object does not exist, or no pod has the device and not all nodes
     were queried`

func newTool(streams genericiooptions.IOStreams) *tool {
	safe := genericiooptions.IOStreams{In: streams.In, Out: clierr.Terminal(streams.Out), ErrOut: clierr.Terminal(streams.ErrOut)}
	t := &tool{IOStreams: safe, raw: streams.Out, rawErr: streams.ErrOut, config: genericclioptions.NewConfigFlags(true)}
	t.exec = t.execute
	return t
}

// connect creates the API client, with kubectl's rate limits, and sets the namespace.
func (t *tool) connect() error {
	config, err := t.config.ToRESTConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 300
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	t.api, err = kubernetes.NewForConfig(config)
	if err == nil && !t.allNamespaces {
		t.namespace, _, err = t.config.ToRawKubeConfigLoader().Namespace()
	}
	return err
}

func (t *tool) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-devinfo",
		Short: "the devices behind the network interfaces of pods",
		Long:  rootHelp,
		Example: `  kubectl devinfo -A                             # all pods
  kubectl devinfo pod dpdk-0                     # all that is known of one
  kubectl devinfo holder 0000:03:00.5 --node n1  # whose device it is
  kubectl devinfo doctor n1                      # problems of a node`,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl devinfo"},
		RunE:        t.list,
	}
	root.SetOut(t.Out)
	root.SetErr(t.ErrOut)
	t.config.AddFlags(root.PersistentFlags())
	t.listFlags(root)
	cobra.EnableCommandSorting = false
	root.AddCommand(t.listCommand(), t.podCommand(), t.holderCommand())
	root.AddCommand(t.nodeCommands()...)
	_ = root.RegisterFlagCompletionFunc("namespace", t.complete("namespaces", true))
	for _, cmd := range append(root.Commands(), root) {
		cmd.PreRunE = t.start // not of help and completion, which need no cluster
	}
	commandline.Finish(root)
	return root
}

// start checks the flags before a command sends requests.
func (t *tool) start(*cobra.Command, []string) error {
	if _, err := labels.Parse(t.selector); err != nil {
		return clierr.Misuse("give labels such as app=dpdk", "--selector: %q: %v", t.selector, err)
	}
	t.started = true
	return t.connect()
}
