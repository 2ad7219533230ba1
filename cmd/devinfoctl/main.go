// Devinfoctl shows, checks and explains the device information of a node. The plugin devinfo works without it.
// All commands except install and gc --yes only read.
package main

import (
	"io"
	"os"

	"devinfo-cni.io/pkg/ctl/clierr"
	"devinfo-cni.io/pkg/ctl/commandline"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run runs the program and returns its exit code. A signal ends the command and removes unpacked files.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	t := &tool{stdin: stdin, stdout: stdout, stderr: stderr}
	self, err := os.Executable()
	t.inPod = err == nil && self == inImage
	return t.run(args)
}

// inImage is the path of devinfoctl in the agents' images.
const inImage = "/devinfoctl"

func (t *tool) run(args []string) int {
	defer t.close()
	root := newRoot(t)
	root.SetArgs(args)
	root.SetIn(t.stdin)
	root.SetOut(t.stdout)
	root.SetErr(t.stderr)
	err := commandline.Run(root)
	return clierr.Report(t.stderr, "devinfoctl", t.started, err)
}
