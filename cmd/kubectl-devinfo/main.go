// Kubectl-devinfo shows the devices behind the network interfaces of pods in the whole cluster. It reads API
// objects (see package cluster), and runs devinfoctl in the agents' pods for devices that are not in the API.
package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/exec"

	"devinfo-cni.io/pkg/ctl/clierr"
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
	var remote exec.CodeExitError
	if errors.As(err, &remote) {
		return remote.Code
	}
	return clierr.Report(t.ErrOut, "kubectl devinfo", t.started, err)
}
