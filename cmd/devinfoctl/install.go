package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
)

const installHelp = `Installs the plugin in the directory from which the container runtime runs plugins.

install runs the new plugin with --version and CNI_COMMAND=VERSION. If that succeeds, it copies the
file beside the old one and renames the copy, so the plugin is complete at every moment. A running
plugin keeps the old file. If the same file is already installed, nothing changes.

install fails and changes nothing in two cases:

  - The file in the directory is not a devinfo plugin. Give --overwrite-foreign to overwrite it. The
    flag is not needed if devinfo-agent has installed the plugin there before.
  - The journal has entries that the new plugin cannot read. It would treat the devices of these
    attachments as free.
`

func installCommand(t *tool) *cobra.Command {
	var p install.PluginFile
	cmd := &cobra.Command{
		Use:   "install --cni-bin-dir DIR",
		Short: "put the plugin where the container runtime finds it",
		Long:  installHelp,
		Example: `  devinfoctl install --cni-bin-dir /opt/cni/bin
  devinfoctl install --cni-bin-dir /host/opt/cni/bin --from /plugins/devinfo`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.Dir == "" {
				return clierr.Misuse("on most nodes it is /opt/cni/bin; the container runtime's configuration names it", "install: --cni-bin-dir is missing")
			}
			if t.captureFile != "" {
				return clierr.Misuse("leave --capture out", "install: a capture cannot be changed")
			}
			return t.install(cmd.Context(), &p)
		},
	}
	cmd.Flags().StringVar(&p.Dir, "cni-bin-dir", "", "`directory` of the CNI plugins")
	cmd.Flags().StringVar(&p.From, "from", "", "the plugin's `file` (default: devinfo beside devinfoctl)")
	cmd.Flags().BoolVar(&p.OverwriteForeign, "overwrite-foreign", false, "overwrite a file that is not a devinfo plugin")
	cmd.Flags().BoolVar(&p.ForDriver, "for-driver", false, "mark an installed or replaced plugin, so that cni-dra-driver --uninstall removes it")
	_ = cmd.MarkFlagDirname("cni-bin-dir")
	return cmd
}

func (t *tool) install(ctx context.Context, p *install.PluginFile) error {
	if p.From == "" {
		self, err := os.Executable()
		if err != nil {
			return clierr.For(fmt.Errorf("install: %w", err), "name the plugin's file by --from")
		}
		p.From = filepath.Join(filepath.Dir(self), install.Name)
	}
	p.Newer = t.newer
	done, err := p.Place(ctx)
	if err != nil {
		return installError(err, p.Dir, p.From)
	}
	if done.Warning != nil {
		t.warn("install: %v", done.Warning)
	}
	return t.print(done, false, func(w *bytes.Buffer) {
		fmt.Fprintf(w, "%s: %s\n", done.Path, done.State)
		if done.Old != nil && done.State != install.AlreadyThere {
			fmt.Fprintf(w, "  old  %s\n", done.Old)
		}
		fmt.Fprintf(w, "  new  %s\n", &done.New)
	})
}

// newer returns the pods of journal entries that have a newer format.
func (t *tool) newer(than int) ([]string, error) {
	node, err := t.settings()
	if err != nil {
		return nil, err
	}
	j := journal.Open(node.StateDir, "")
	// The default directory may be missing, because nothing was attached on this node yet.
	if node.StateDir != config.DefaultNode().StateDir {
		if err := j.EnsureDir(); err != nil {
			return nil, err
		}
	}
	return j.Newer(than)
}

func installError(err error, dir, from string) error {
	err = fmt.Errorf("install: %w", err)
	var path *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist) && errors.As(err, &path) && path.Path == from:
		return clierr.For(err, "build it (make build), or name the plugin's file by --from")
	case errors.Is(err, syscall.EROFS):
		return clierr.For(err, dir+" is on a file system that is mounted read-only: mount it writable, or name the runtime's other plugin directory")
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return clierr.For(err, "run as root, or as the owner of "+dir)
	}
	return err
}
