package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

const installHelp = `Puts the plugin into the directory that the container runtime starts plugins from.

The new file is written beside, run with CNI_COMMAND=VERSION, and only then renamed:
at every moment there is a whole plugin, and one that runs goes on with the old file.
Installing what is there already changes nothing.`

const installExample = `  devinfoctl install --cni-bin-dir /opt/cni/bin
  devinfoctl install --cni-bin-dir /host/opt/cni/bin --from /plugins/devinfo`

// pluginName is the name that network configurations have in "type".
const pluginName = "devinfo"

// installation is what install prints.
type installation struct {
	Path  string      `json:"path"`
	State string      `json:"state"`         // "installed", "replaced" or "already there"
	Old   *executable `json:"old,omitempty"` // nil = there was none
	New   executable  `json:"new"`
}

// executable is a plugin's file.
type executable struct {
	Size        int64    `json:"size"`   // bytes
	SHA256      string   `json:"sha256"` // hexadecimal
	CNIVersions []string `json:"cniVersions,omitempty"`
	Problem     string   `json:"problem,omitempty"` // why it does not say its versions
}

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
				return usage("the directory is /opt/cni/bin on most nodes; the container runtime's configuration says it", "install: --cni-bin-dir is missing")
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
	done, err := place(ctx, from, filepath.Join(dir, pluginName))
	if err != nil {
		return installError(err, dir, from)
	}
	return t.print(done, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "%s: %s\n", done.Path, done.State)
		if done.Old != nil && done.State != alreadyThere {
			fmt.Fprintf(w, "  old\t%s\n", done.Old)
		}
		fmt.Fprintf(w, "  new\t%s\n", &done.New)
	})
}

func (e *executable) String() string {
	says := e.Problem
	if says == "" {
		says = fmt.Sprintf("CNI %s", e.CNIVersions)
	}
	return fmt.Sprintf("%d bytes\tsha256:%.16s\t%s", e.Size, e.SHA256, says)
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

const alreadyThere = "already there"

// place puts the file from to the path to. Old content stays until the new one has
// shown that it runs.
func place(ctx context.Context, from, to string) (*installation, error) {
	old, err := examine(ctx, to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	done := &installation{Path: to, State: "installed", Old: old}
	temp, err := copyBeside(from, to)
	if err != nil {
		return nil, err
	}
	defer os.Remove(temp) // it is gone when all went well
	now, err := examine(ctx, temp)
	if err != nil {
		return nil, err
	}
	if now.Problem != "" {
		return nil, fmt.Errorf("%s does not run here: %s; nothing was changed", from, now.Problem)
	}
	done.New = *now
	if old != nil {
		done.State = "replaced"
		if old.SHA256 == now.SHA256 && old.Problem == "" {
			done.State = alreadyThere
			return done, nil
		}
	}
	if err := os.Rename(temp, to); err != nil {
		return nil, err
	}
	return done, syncDir(filepath.Dir(to))
}

// copyBeside copies the file from to a temporary one in the directory of to, whole
// and on the disk: a half one must not survive a power failure under the final name.
func copyBeside(from, to string) (name string, err error) {
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer in.Close()
	if stat, err := in.Stat(); err == nil && !stat.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file", from)
	}
	out, err := os.CreateTemp(filepath.Dir(to), "."+pluginName+".*.new")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	for _, step := range []func() error{func() error { return out.Chmod(0o755) }, out.Sync} {
		if err == nil {
			err = step()
		}
	}
	if err = errors.Join(err, out.Close()); err != nil {
		_ = os.Remove(out.Name())
		return "", err
	}
	return out.Name(), nil
}

// examine measures an executable and asks it for its versions. That a file does not
// answer is its Problem; that there is none, or something else, an error.
func examine(ctx context.Context, name string) (*executable, error) {
	stat, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !stat.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is there and is no file (mode %s): move it away", name, stat.Mode())
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, err
	}
	e := &executable{Size: stat.Size(), SHA256: fmt.Sprintf("%x", sum.Sum(nil))}
	if e.CNIVersions, err = versions(ctx, name); err != nil {
		e.Problem = err.Error()
	}
	return e, nil
}

// versions runs a plugin's VERSION, which touches nothing (CNI specification 1.1.0,
// "VERSION").
func versions(ctx context.Context, name string) ([]string, error) {
	const enough = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	cmd := exec.CommandContext(ctx, name)
	cmd.Env = []string{"CNI_COMMAND=VERSION"}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("VERSION: %w", err)
	}
	var answer struct {
		Supported []string `json:"supportedVersions"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, fmt.Errorf("VERSION: its answer is no JSON: %w", err)
	}
	if len(answer.Supported) == 0 {
		return nil, errors.New("VERSION: its answer names no supportedVersions: it is no CNI plugin")
	}
	return answer.Supported, nil
}

// syncDir makes a rename in dir outlast a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
