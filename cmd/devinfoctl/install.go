package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/install"
)

const installHelp = `Puts the plugin into the directory that the container runtime starts plugins from.

The new file is written beside the old one, run with CNI_COMMAND=VERSION, and only then
renamed: there is a whole plugin at every moment, and a running one keeps the old file.
Installing what is already there changes nothing.`

const installExample = `  devinfoctl install --cni-bin-dir /opt/cni/bin
  devinfoctl install --cni-bin-dir /host/opt/cni/bin --from /plugins/devinfo`

// pluginName is the plugin's "type" in network configurations.
const pluginName = install.Name

func installCommand(t *tool) *cobra.Command {
	var dir, from string
	cmd := &cobra.Command{
		Use:     "install --cni-bin-dir DIR",
		Short:   "put the plugin where the container runtime finds it",
		Long:    installHelp,
		Example: installExample,
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usage("on most nodes it is /opt/cni/bin; the container runtime's configuration names it", "install: --cni-bin-dir is missing")
			}
			if t.hostFile != "" {
				return usage("leave --host out", "install: a captured host cannot be changed")
			}
			return t.install(cmd.Context(), dir, from)
		},
	}
	cmd.Flags().StringVar(&dir, "cni-bin-dir", "", "`directory` of the CNI plugins")
	cmd.Flags().StringVar(&from, "from", "", "the plugin's `file` (default: devinfo beside devinfoctl)")
	_ = cmd.MarkFlagDirname("cni-bin-dir")
	return cmd
}

func (t *tool) install(ctx context.Context, dir, from string) error {
	if from == "" {
		self, err := os.Executable()
		if err != nil {
			return blind(fmt.Errorf("install: %w", err), "name the plugin's file by --from")
		}
		from = filepath.Join(filepath.Dir(self), pluginName)
	}
	done, err := install.Place(ctx, from, dir)
	if err != nil {
		return installError(err, dir, from)
	}
	if done.Warning != nil {
		t.warn("install: %v", done.Warning)
	}
	return t.print(done, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "%s: %s\n", done.Path, done.State)
		if done.Old != nil && done.State != install.AlreadyThere {
			fmt.Fprintf(w, "  old\t%s\n", done.Old)
		}
		fmt.Fprintf(w, "  new\t%s\n", &done.New)
	})
}

func installError(err error, dir, from string) error {
	err = fmt.Errorf("install: %w", err)
	var path *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist) && errors.As(err, &path) && path.Path == from:
		return blind(err, "build it (make build), or name the plugin's file by --from")
	case errors.Is(err, fs.ErrNotExist):
		return blind(err, dir+" must exist: it is where the container runtime looks for plugins")
	case errors.Is(err, errReadOnly):
		return blind(err, dir+" is on a file system that is mounted read-only: mount it writable, or name the runtime's other plugin directory")
	case errors.Is(err, fs.ErrPermission):
		return blind(err, "run as root, or as the owner of "+dir)
	}
	return err
}
