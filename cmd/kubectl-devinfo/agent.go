package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// agentLabel is what the DaemonSet gives its pods. Anyone may give it to theirs, so it counts
// in the namespace of devinfo-agent only.
const agentLabel = "app.kubernetes.io/name=devinfo-agent"

func (t *tool) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "doctor NODE [-- ARGUMENTS]",
		Short:   "what is wrong on a node, and what to do about it: devinfoctl doctor, there",
		Example: "  kubectl devinfo doctor n1\n  kubectl devinfo doctor n1 -- -o json",
		Args:    node,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.onNode(cmd.Context(), args[0], append([]string{"doctor"}, args[1:]...))
		},
	}
	t.agentFlags(cmd)
	return cmd
}

func (t *tool) captureCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "capture NODE [-- ARGUMENTS]",
		Short:   "a node's devices and attachments as a text: devinfoctl capture, there",
		Example: "  kubectl devinfo capture n1 -- --scrub > n1.txtar",
		Args:    node,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.onNode(cmd.Context(), args[0], append([]string{"capture", "-o", "-"}, args[1:]...))
		},
	}
	t.agentFlags(cmd)
	return cmd
}

func (t *tool) agentFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.agentNamespace, "agent-namespace", "devinfo", "where devinfo-agent is installed")
}

func node(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("NODE is missing: kubectl get nodes lists them")
	}
	return nil
}

// onNode runs devinfoctl in the agent's pod of a node.
func (t *tool) onNode(ctx context.Context, node string, args []string) error {
	pod, err := t.agentOn(ctx, node)
	if err != nil {
		return err
	}
	client, err := t.client()
	if err != nil {
		return err
	}
	config, err := t.config.ToRESTConfig()
	if err != nil {
		return err
	}
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: "agent", Command: append([]string{"/devinfoctl"}, args...), Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	session, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	return session.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: t.Out, Stderr: t.ErrOut})
}

// agentOn is the running pod of devinfo-agent on a node.
func (t *tool) agentOn(ctx context.Context, node string) (*corev1.Pod, error) {
	if t.agentNamespace == metav1.NamespaceAll {
		return nil, errors.New("--agent-namespace is empty: name the namespace that devinfo-agent is installed in")
	}
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	pods, err := client.CoreV1().Pods(t.agentNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: agentLabel, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, err
	}
	for n := range pods.Items {
		if pods.Items[n].Status.Phase == corev1.PodRunning {
			return &pods.Items[n], nil
		}
	}
	if _, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("no pod of devinfo-agent (label %s) runs on node %s in namespace %s: name its namespace by --agent-namespace, install it, or run devinfoctl there",
		agentLabel, node, t.agentNamespace)
}
