package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/output"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/host/store"
)

const validateHelp = `Reports all errors in files, or in standard input (-), each with its line, its path, its value
and the rule. It reads JSON and YAML, also several documents in a file, and Lists as kubectl
prints them. In a directory it reads all files whose name ends in .json, .yaml, .yml, .conf or
.conflist, except the templates of Helm charts. The kinds are

  device-info  a device-info file (Device Information Specification 1.1.0)
  cni-config   a CNI configuration or configuration list that contains the plugin devinfo, or
               a NetworkAttachmentDefinition, also in the delegates of Multus and in the
               metaPlugins of a SriovNetwork; a pod or workload is checked with its networks
               if they are in one of the files
  dra          a DeviceClass, ResourceClaim or ResourceClaimTemplate with parameters for
               cni-dra-driver; a claim is checked with its classes if they are in one of
               the files
  settings     node.json, or the ConfigMap with the settings of devinfo-agent

An error makes ADD, Prepare or devinfo-agent fail, makes ADD and Prepare do nothing, or makes the
container runtime refuse the network.

Without --kind, validate derives the kind of each document: from the kind of a Kubernetes object;
cni-config from type or plugins with cniVersion or name; device-info from type with version;
settings from one of their keys, also if it is misspelt, or from the file name node.json or
default.json. It names what has nothing to check: networks without devinfo, claims of other
drivers, and pods whose networks are not in the files; it counts other kinds. Unless no directory
of --cni-path exists on this machine, it also looks for the plugins there.

Exits with 1 if there is an error, or with --strict a warning.`

func validateCommand(t *tool) *cobra.Command {
	var checker validate.Checker
	var kind string
	var strict bool
	cmd := &cobra.Command{
		Use:   "validate FILE|DIRECTORY|-...",
		Short: "find mistakes in device-info files, configurations and node settings",
		Long:  validateHelp,
		Example: `  devinfoctl validate /var/run/k8s.cni.cncf.io/devinfo/cni/sriov-net-3f1c2d_net1
  kubectl get network-attachment-definition -A -o yaml | devinfoctl validate -
  devinfoctl validate --strict --allow-claim-config macvlan,host-local deploy/
  devinfoctl validate --kind cni-config /etc/cni/net.d/10-net.conflist`,
		Args: commandline.Many("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			signal.Reset(os.Interrupt, syscall.SIGTERM) // reading may block, and there is nothing to clean up
			return t.validate(args, checker, validate.Kind(kind), strict)
		},
	}
	commandline.Choice(cmd, cmd.Flags(), &kind, "kind", "", "", "kind of the documents: "+strings.Join(validate.Kinds, ", "), validate.Kinds...)
	cmd.Flags().StringSliceVar(&checker.ClaimTypes, "allow-claim-config", nil, "plugins that claims may configure, as in cni-dra-driver --allow-claim-config on the nodes (default: validate warns that nodes may allow no plugin)")
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	t.cniPathFlag(cmd)
	return cmd
}

func (t *tool) validate(args []string, checker validate.Checker, kind validate.Kind, strict bool) error {
	files, unread := filesIn(args)
	docs := []validate.Document{}
	for _, name := range files {
		text, err := t.read(name)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		docs = append(docs, validate.Parse(name, text)...)
	}
	var blind error
	if len(unread) > 0 {
		blind = clierr.For(errors.Join(unread...), "name a file that can be read, or - for standard input")
	}
	if len(docs) == 0 && blind != nil {
		return blind
	}
	checker.Find = finder(t.pluginDirs())
	checker.Check(docs, kind)
	strange := len(docs) > 0
	for _, d := range docs {
		strange = strange && d.Skipped == validate.NoKind && d.Name == ""
		for n := range d.Findings {
			d.Findings[n].Warning = d.Findings[n].Warning && !strict
		}
	}
	if strange && slices.Equal(files, args) && len(files) == 1 { // somebody has named the wrong file
		return clierr.Misuse("name its format by --kind; rules of cni-dra-driver are for cni-dra-driver inventory --config", "%s: %s", files[0], validate.NoKind)
	}
	if checker.Find == nil && slices.ContainsFunc(docs, func(d validate.Document) bool { return d.Kind == validate.CNIConfig }) {
		t.warn("plugins are not looked for: no directory of --cni-path %s is on this machine", t.pluginDirs())
	}
	found := blind == nil && slices.ContainsFunc(docs, func(d validate.Document) bool { return d.Errors() > 0 })
	return cmp.Or(t.print(map[string]any{"documents": docs}, found, func(w *bytes.Buffer) { validationTable(w, docs) }), blind)
}

// filesIn returns the files that the arguments name, or that are in the directories, and the errors of those that are not
// to be read.
func filesIn(args []string) (files []string, unread []error) {
	for _, arg := range args {
		stat, err := os.Stat(arg)
		if arg == "-" || err != nil || !stat.IsDir() { // the read returns the error
			files = append(files, arg)
			continue
		}
		_ = filepath.WalkDir(arg, func(path string, e fs.DirEntry, err error) error {
			if _, noChart := os.Stat(filepath.Join(path, "../Chart.yaml")); err == nil && e.IsDir() && e.Name() == "templates" && noChart == nil {
				return fs.SkipDir // templates of a Helm chart are not YAML
			}
			if err == nil && (e.IsDir() || !slices.Contains([]string{".json", ".yaml", ".yml", ".conf", ".conflist"}, filepath.Ext(path))) {
				return nil
			}
			if err == nil {
				stat, err = os.Stat(path)
			}
			switch {
			case err != nil:
				unread = append(unread, err)
			case !stat.Mode().IsRegular(): // a named pipe would be waited for
				unread = append(unread, fmt.Errorf("%s: %w", path, store.ErrNotRegular))
			default:
				files = append(files, path)
			}
			return nil
		})
	}
	return files, unread
}

func (t *tool) read(name string) ([]byte, error) {
	from := t.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	return io.ReadAll(io.LimitReader(from, validate.Limit+1))
}

// finder returns a function that looks for a plugin; nil = none of the directories exists.
func finder(cniPath string) func(plugin string) error {
	dirs := slices.DeleteFunc(filepath.SplitList(cniPath), func(dir string) bool {
		stat, err := os.Stat(dir)
		return err != nil || !stat.IsDir()
	})
	if len(dirs) == 0 {
		return nil
	}
	return func(name string) error {
		_, err := new(cniexec.Exec).FindInPath(name, dirs)
		return err
	}
}

// validationTable prints the findings, how many documents are of other kinds, and a sum.
func validationTable(w io.Writer, docs []validate.Document) {
	var errs, warnings, valid, left int
	others := map[string]int{} // number of documents that validate does not support, by kind
	for _, d := range docs {
		n := d.Errors()
		switch {
		case len(d.Findings) > 0:
			fmt.Fprintf(w, "%s: %s, %s\n", named(d), count(n, "error"), count(len(d.Findings)-n, "warning"))
		case d.Skipped == validate.NoKind:
			kind, _, _ := strings.Cut(d.Name, " ")
			others[cmp.Or(kind, "other")]++
			left++
		case d.Skipped != "":
			fmt.Fprintf(w, "%s: not checked: %s\n", named(d), d.Skipped)
			left++
		default:
			valid++
			fmt.Fprintf(w, "%s: valid\n", named(d))
		}
		errs, warnings = errs+n, warnings+len(d.Findings)-n
		for _, f := range d.Findings {
			level := map[bool]string{true: "warning", false: "error"}[f.Warning]
			if f.Line > 0 {
				level = fmt.Sprintf("line %d: %s", f.Line, level)
			}
			fmt.Fprintf(w, "  %s: %s\n", level, output.Cell(f.String()))
		}
	}
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(others)) {
		list = append(list, fmt.Sprintf("%d %s", others[kind], kind))
	}
	if len(list) > 0 {
		fmt.Fprintf(w, "%s: not checked: %s\n", output.Cell(strings.Join(list, ", ")), validate.NoKind)
	}
	switch {
	case len(docs) == 0:
		fmt.Fprintln(w, "nothing to check")
	case len(docs) > 1:
		fmt.Fprintf(w, "%s: %d valid, %d not checked; %s, %s\n", count(len(docs), "document"), valid, left, count(errs, "error"), count(warnings, "warning"))
	}
}

// named returns the file of a document, and the object, or its kind if it is none of Kubernetes.
func named(d validate.Document) string {
	return output.Cell(d.File + ": " + cmp.Or(d.Name, string(d.Kind), "unreadable"))
}
