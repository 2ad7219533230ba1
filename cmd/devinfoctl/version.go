package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/ctl/commandline"
)

const versionHelp = `Shows what this program was built from: the version of the module, the commit, whether
the repository had uncommitted changes, and the version of Go. devinfo --version shows the
plugin's.`

func versionCommand(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "what this program was built from",
		Long:    versionHelp,
		Example: "  devinfoctl version\n  devinfoctl version -o json",
		Args:    commandline.Args(0),
		RunE: func(*cobra.Command, []string) error {
			info := build.Read()
			return t.print(info, func(w *tabwriter.Writer) { fmt.Fprintln(w, "devinfoctl", info) })
		},
	}
}
