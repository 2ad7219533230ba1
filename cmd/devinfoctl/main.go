// Devinfoctl shows, checks and explains the device information of a node. The plugin devinfo works without it.
// All commands except install and gc --yes only read.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/output"
	"devinfo-cni.io/pkg/host/store"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run runs the program and returns its exit code. A signal ends the command and removes unpacked files.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	t := &tool{stdin: stdin, raw: stdout, stdout: clierr.Terminal(stdout), stderr: clierr.Terminal(stderr)}
	self, err := os.Executable()
	t.inPod = err == nil && self == "/devinfoctl" // its path in the agents' images
	return t.run(args)
}

func (t *tool) run(args []string) int {
	defer t.close()
	root := newRoot(t)
	root.SetArgs(args)
	root.SetOut(t.stdout)
	root.SetErr(t.stderr)
	err := commandline.Run(root)
	return clierr.Report(t.stderr, "devinfoctl", t.started, err)
}

type tool struct {
	stdin          io.Reader
	stdout, stderr io.Writer // safe for a terminal
	raw            io.Writer // standard output for files
	inPod          bool      // the program runs in the container of an agent

	output      string // -o: "table", "json" or "yaml"
	captureFile string // --capture; "" = this machine
	hostRoot    string // --host-root; "" = /
	nodeFile    string // --node-config; "" = the plugin's default
	claimDir    string // --dra-state-dir; "" = the driver's default
	cniPath     string // --cni-path: see pluginDirs

	tolerant    bool // invalid node settings set nodeProblem instead of failing
	nodeProblem string

	started bool  // the command line is valid
	opened  *host // nil until the method host is called
}

const rootHelp = `devinfoctl shows, checks and explains the device information of this node, or of a node that
was captured to a file.

Exit codes:
  0  success, and no problem found
  1  check, doctor, offered, validate or gc --dry-run found a problem
  2  the command line is invalid
  3  the command failed, could not read everything, or found nothing with that name`

func newRoot(t *tool) *cobra.Command {
	root := &cobra.Command{
		Use:   "devinfoctl",
		Short: "see, check and explain device information on a node",
		Long:  rootHelp,
		Example: `  devinfoctl list                           # the attachments of this node
  devinfoctl inspect 0000:3b:02.1           # the device information of a device, with sources
  devinfoctl doctor                         # problems and remedies
  devinfoctl topology                       # the devices, as a tree
  devinfoctl capture --scrub -o node.txtar  # for a problem report
  devinfoctl --capture node.txtar topology  # the same tree, somewhere else`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	commandline.Choice(root, flags, &t.output, "output", "o", "table", "how to print: table, json or yaml", "table", "json", "yaml")
	flags.StringVar(&t.captureFile, "capture", "", "examine the capture in this `file`, not this machine")
	flags.StringVar(&t.hostRoot, "host-root", "", "examine the node whose root filesystem is mounted at this `directory` (in cni-dra-driver's container: /host)")
	flags.StringVar(&t.nodeFile, "node-config", "", "node settings `file` (default $DEVINFO_NODE_CONFIG, else "+config.NodeFile+")")
	flags.StringVar(&t.claimDir, "dra-state-dir", "", "`directory` of cni-dra-driver's records (default $"+state.DirVariable+", else "+state.DefaultDir+")")
	_ = root.MarkPersistentFlagFilename("capture", "txtar")
	cobra.EnableCommandSorting = false
	root.AddCommand(inspectCommand(t), listCommand(t), checkCommand(t), doctorCommand(t), validateCommand(t), gcCommand(t), topologyCommand(t),
		offeredCommand(t), captureCommand(t), installCommand(t)) // the help has this order
	for _, cmd := range root.Commands() {
		cmd.PersistentPreRunE = t.start // not of help, which needs no node
	}
	commandline.Finish(root)
	return root
}

// start refuses flags with an empty value, records that a command has started, and goes to the node that it examines.
func (t *tool) start(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.String() == "" { // usually an unset variable in a script
			err = cmp.Or(err, clierr.Misuse("give it a value, or leave the flag out", "--%s is empty", f.Name))
		}
	})
	if err != nil {
		return err
	}
	t.started = true
	if err := t.enter(); err != nil {
		return err
	}
	return t.exposed()
}

// exposed refuses a --cni-path in an agent's pod if users other than root can write there, because doctor runs
// the programs in it as root. The pod also mounts directories that users of the node can write.
func (t *tool) exposed() error {
	if !t.inPod {
		return nil
	}
	for _, dir := range filepath.SplitList(t.cniPath) {
		if err := store.Unexposed(dir); err != nil {
			return clierr.Misuse("name the directory of the container runtime's CNI plugins", "--cni-path: %w", err)
		}
	}
	return nil
}

// onHost returns the body of a command that examines a host.
func (t *tool) onHost(look func(cmd *cobra.Command, h *host, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		h, err := t.host()
		if err != nil {
			return err
		}
		return look(cmd, h, args)
	}
}

// enter changes the root directory to --host-root, so that paths and links resolve as on the node.
func (t *tool) enter() error {
	if t.hostRoot == "" {
		return nil
	}
	if t.captureFile != "" {
		return clierr.Misuse("leave one of the two out", "--host-root: cannot be combined with --capture")
	}
	err := syscall.Chroot(t.hostRoot)
	if err == nil {
		err = os.Chdir("/")
	}
	if err != nil {
		return clierr.For(fmt.Errorf("--host-root: %s: %w", t.hostRoot, err), "name the directory where the node's root is mounted, and run as root in a privileged container")
	}
	return nil
}

// settings returns the settings of the node or of the captured host.
func (t *tool) settings() (config.Node, error) {
	path := cmp.Or(t.nodeFile, os.Getenv("DEVINFO_NODE_CONFIG"), config.NodeFile)
	if _, err := os.Stat(path); err != nil && t.nodeFile != "" {
		return config.Node{}, clierr.For(fmt.Errorf("--node-config: %w", err), "name a file that exists, or leave the flag out to use the defaults")
	}
	node, err := config.LoadNode(path)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrPermission) && t.nodeFile == "":
		t.warn("%v; the defaults are used", err)
	case t.tolerant:
		t.nodeProblem = err.Error()
	default:
		return node, clierr.For(err, "correct the file; the plugin refuses ADD with it too")
	}
	return node, nil
}

// print prints value in the format of -o: with table, or as JSON or YAML. The command has found a problem if found is true.
func (t *tool) print(value any, found bool, table func(w *bytes.Buffer)) error {
	var err error
	if t.output == "table" {
		var b bytes.Buffer
		table(&b)
		_, err = t.stdout.Write(b.Bytes())
	} else {
		err = output.Encode(t.stdout, t.output, value)
	}
	if err == nil && found {
		return clierr.ErrFound
	}
	return err
}

// say prints each text on a line with a label. It skips empty texts.
func say(w io.Writer, indent, what string, texts ...string) {
	for _, text := range texts {
		if text != "" {
			fmt.Fprintf(w, "%s%s: %s\n", indent, what, output.Cell(text))
		}
	}
}

// count formats a number with its noun, which has a plural in -s.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (t *tool) warn(format string, args ...any) {
	fmt.Fprintf(t.stderr, "devinfoctl: warning: %s\n", fmt.Sprintf(format, args...))
}
