package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/pkg/ctl/commandline"
)

// Labels of the agents' pods.
const (
	nameLabel    = "app.kubernetes.io/name"
	agentName    = "devinfo-agent"
	driverName   = "cni-dra-driver"
	agentsLabels = nameLabel + " in (" + agentName + "," + driverName + ")"
)

// nodeCommands returns the commands that run devinfoctl on a node, in a pod that may be another program's.
func (t *tool) nodeCommands() (all []*cobra.Command) {
	for _, c := range []struct{ name, short, also string }{
		{"topology", "run devinfoctl topology on a node, which prints its network devices and their holders as a tree", " -- 0000:3b:00.0"},
		{"doctor", "run devinfoctl doctor on a node, which prints its problems with remedies", " -- -o json"},
		{"offered", "run devinfoctl offered on a node, which prints the devices that cni-dra-driver offers and their claims", " -- -o json"},
		{"capture", "run devinfoctl capture on a node, which prints its devices and attachments", " --scrub -o n1.txtar"},
	} {
		example := "  kubectl devinfo " + c.name + " n1"
		scrub, file := false, "-"
		cmd := &cobra.Command{
			Use: c.name + " NODE [-- ARGUMENTS]", Short: c.short, Example: example + "\n" + example + c.also, Args: commandline.Many("NODE"), ValidArgsFunction: t.complete("nodes", false),
			RunE: func(cmd *cobra.Command, args []string) error {
				command, to := append([]string{c.name}, args[1:]...), t.Out
				if c.name == "capture" { // it is a file
					command, to = append(command, "-o", "-"), t.raw
				}
				if scrub {
					command = append(command, "--scrub")
				}
				if _, err := os.Lstat(file); err == nil && file != "-" {
					return clierr.Misuse("remove it, or name another file", "-o: %s exists", file)
				}
				var out, errOut bytes.Buffer
				done := commandline.Progress(t.rawErr, c.name+" of node "+args[0])
				err := t.onNode(cmd.Context(), args[0], command, &out, &errOut)
				done()
				fmt.Fprint(t.ErrOut, errOut.String())
				if file != "-" {
					return cmp.Or(t.save(file, out.Bytes(), err), err)
				}
				_, writeErr := to.Write(out.Bytes())
				return cmp.Or(err, writeErr)
			},
		}
		if c.name == "capture" {
			cmd.Flags().BoolVar(&scrub, "scrub", false, "rename addresses, pods, serial numbers and the host")
			cmd.Flags().StringVarP(&file, "output", "o", file, "the `file` to write, which must not exist; - is standard output")
			_ = cmd.MarkFlagFilename("output", "txtar")
		}
		t.agentFlags(cmd)
		all = append(all, cmd)
	}
	return all
}

// save writes a capture for its owner only. An answer that broke off is none; one that devinfoctl calls incomplete is kept.
func (t *tool) save(name string, text []byte, err error) error {
	switch {
	case err == nil && len(text) == 0:
		return errors.New("devinfoctl on the node printed no capture: install the same version of devinfo on the node and on this machine")
	case len(text) == 0 || err != nil && !errors.As(err, new(exec.CodeExitError)):
		return nil // the caller has the error
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	_, err = file.Write(text)
	if err = cmp.Or(err, file.Close()); err != nil {
		return errors.Join(fmt.Errorf("-o: %w", err), os.Remove(name))
	}
	return nil
}

func (t *tool) agentFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.agentNamespace, "agent-namespace", "", "the namespace of devinfo-agent and cni-dra-driver (default: any)")
}

func (t *tool) onNode(ctx context.Context, node string, args []string, out, errOut io.Writer) error {
	pod, down, err := t.agentOn(ctx, node)
	if err != nil {
		return err
	}
	if down != nil {
		fmt.Fprintf(errOut, "note: %v; this is the answer of pod %s/%s\n", down, pod.Namespace, pod.Name)
	}
	command := []string{"/devinfoctl"}
	if pod.Labels[nameLabel] == driverName {
		command = append(command, "--host-root", "/host")
	}
	err = t.exec(ctx, pod, append(command, args...), remotecommand.StreamOptions{Stdout: out, Stderr: errOut})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("pod %[1]s/%[2]s took more than %[3]v: kubectl -n %[1]s logs %[2]s may show why", pod.Namespace, pod.Name, patience)
	}
	return err
}

// execute runs a command in an agent's pod. It uses WebSockets, or SPDY if the API server or a proxy refuses
// WebSockets.
func (t *tool) execute(ctx context.Context, pod *corev1.Pod, command []string, streams remotecommand.StreamOptions) error {
	config, err := t.config.ToRESTConfig()
	if err != nil {
		return err
	}
	url := t.api.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "agent", Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	spdy, spdyErr := remotecommand.NewSPDYExecutor(config, "POST", url)
	sockets, socketsErr := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
	session, err := remotecommand.NewFallbackExecutor(sockets, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err = cmp.Or(spdyErr, socketsErr, err); err != nil {
		return err
	}
	return session.StreamWithContext(ctx, streams)
}

// agentOn returns a running pod of an agent on the node. If there are several, it prefers a pod whose container runs,
// because exec fails while the kubelet waits to restart it, and then the driver's, which mounts the whole node at /host.
// The error down names another pod whose container does not run.
func (t *tool) agentOn(ctx context.Context, node string) (found *corev1.Pod, down, err error) {
	pods, err := t.api.CoreV1().Pods(t.agentNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: agentsLabels, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if apierrors.IsForbidden(err) && t.agentNamespace == "" {
		err = clierr.For(err, "with --agent-namespace NAMESPACE the right to list pods in that namespace suffices")
	}
	if err != nil {
		return nil, nil, err
	}
	for n := range pods.Items {
		pod := &pods.Items[n]
		// Any user can give a pod the agents' labels, but users who can mount directories of the node, as the agents do,
		// are trusted with the node.
		hasNode := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
		waits := slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == "agent" && c.State.Running == nil })
		switch {
		case pod.Status.Phase != corev1.PodRunning || !hasNode:
		case waits: // for example in a CrashLoopBackOff
			down = fmt.Errorf("the container of pod %[1]s/%[2]s on node %[3]s does not run: kubectl -n %[1]s logs %[2]s shows why", pod.Namespace, pod.Name, node)
		case found == nil || pod.Labels[nameLabel] == driverName:
			found = pod
		}
	}
	if found != nil {
		return found, down, nil
	}
	if down != nil {
		return nil, nil, down
	}
	if _, err := t.api.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil, nil, err
	}
	return nil, nil, fmt.Errorf("%w on node %s: install one of them, or run devinfoctl on the node", errNoAgent, node)
}

var errNoAgent = errors.New("no pod of " + agentName + " or " + driverName + " runs")

const (
	patience = 5 * time.Second // for the answer of a node; the API's is shown without it
	shown    = 5               // number of names in a note
)

// ask adds devices that are not in the API, and with t.withRecords what the node has on record of the others. It runs
// devinfoctl list in an agent's pod, but only on the node that the command line names ("" = none), because exec into such a
// pod is root on its node. It prints which nodes it did not query, and whether the node did not answer.
func (t *tool) ask(ctx context.Context, list []cluster.Network, node string) {
	answered := ""
	of := func(is func(*cluster.Network) bool) bool {
		return slices.ContainsFunc(list, func(a cluster.Network) bool { return a.Node == node && is(&a) })
	}
	deviceless := of((*cluster.Network).Deviceless)
	if deviceless || t.withRecords && of(func(a *cluster.Network) bool { return a.Device.Device != "" }) {
		err := t.fill(ctx, list, node)
		switch {
		case err == nil:
			answered = node
		case deviceless:
			t.silent = true
			t.note("the devices shown as ? are unknown, because node %s did not answer: %v", node, err)
		case apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || errors.Is(err, errNoAgent): // who cannot ask needs no reminder
		default:
			t.note("what node %s has on record is unknown, because it did not answer: %v", node, err)
		}
	}
	if unknown := cluster.NotAsked(list, answered); len(unknown) > 0 && !t.silent {
		t.note("the devices shown as ? are not in the API, and these nodes were not queried: %s; kubectl devinfo pod NAME, or holder DEVICE --node NODE, queries one", clierr.Few(unknown, shown))
	}
}

// fill adds what a node has on record, once.
func (t *tool) fill(ctx context.Context, list []cluster.Network, node string) error {
	if t.filled {
		return nil
	}
	var records struct{ Attachments []cluster.Record }
	err := t.answerOf(ctx, node, &records, "list")
	if t.filled = err == nil; t.filled {
		cluster.Fill(list, node, records.Attachments)
	}
	return err
}

// answerOf decodes what devinfoctl prints on a node. It notes an answer that devinfoctl calls incomplete.
func (t *tool) answerOf(ctx context.Context, node string, into any, command ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer commandline.Progress(t.rawErr, "asking node "+node)()
	var out, errOut bytes.Buffer
	err := t.onNode(ctx, node, append(command, "-o", "json"), &out, &errOut)
	said := strings.TrimSpace(errOut.String())
	exit, ran := errors.AsType[exec.CodeExitError](err)
	readable := json.Unmarshal(out.Bytes(), into) == nil
	switch {
	case ran && readable && exit.Code == clierr.Blind:
		t.note("node %s: %s", node, said)
	case ran && readable && exit.Code == clierr.Found: // the answer contains the problem
	case err != nil && said != "":
		return fmt.Errorf("%w: %s", err, said)
	case err != nil:
		return err
	case !readable:
		return errors.New("devinfoctl on the node did not print an answer in JSON: install the same version of devinfo on the node and on this machine")
	}
	return nil
}

// byInterface returns the attachments with the device of an interface of the node, which may be named by an altname, or with a
// representor, which may have another name than in the API, where found have it. If nobody has the name now, it may be that at ADD.
func (t *tool) byInterface(ctx context.Context, list, found []cluster.Network, name string) []cluster.Network {
	var its struct {
		Device     string
		DeviceInfo json.RawMessage
		Shared     bool
	}
	if t.silent || strings.ContainsAny(name, ":/") { // an address or a socket
		return found
	}
	err := t.fill(ctx, list, t.node)
	if err == nil {
		if is := cluster.Holders(list, name); len(is) > 0 {
			return is
		}
		err = t.answerOf(ctx, t.node, &its, "inspect", name)
	}
	switch {
	case err != nil && strings.Contains(err.Error(), view.NoDevice):
		return cluster.Former(list, name)
	case err != nil:
		t.note("node %s: cannot look for %s: %v", t.node, name, err)
		return found
	}
	if info, err := devinfo.Parse(its.DeviceInfo); err == nil {
		its.Device = view.Of(info).Device
	}
	return slices.DeleteFunc(cluster.Holders(list, its.Device), func(a cluster.Network) bool {
		return its.Shared && a.Device.Device != its.Device // a representor, for example, has its PF, and does not stand for the VFs
	})
}
