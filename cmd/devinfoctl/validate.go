package main

import (
	"context"
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

	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/remedy"
	"devinfo-cni.io/pkg/ctl/validate"
)

const validateHelp = `Reports everything that is wrong in files, or in standard input (-), each with its line, its
path, its value and the rule. It reads JSON and YAML, also several documents in a file, and Lists
as kubectl prints them; in a directory, all files whose name ends in .json, .yaml, .yml,
.conf or .conflist. The kinds are

  device-info     a device-info file (Device Information Specification 1.1.0)
  network-status  the value of a pod's annotation k8s.v1.cni.cncf.io/network-status, or
                  the Pod
  cni-config      a CNI configuration, or a list of them, in which devinfo is a plugin,
                  or a NetworkAttachmentDefinition
  dra             a DeviceClass, ResourceClaim or ResourceClaimTemplate with parameters
                  for cni-dra-driver; a claim is checked with those of its classes that are
                  in one of the files

An error is what ADD or Prepare refuses, or what makes them do nothing.

Without --kind the kind is guessed and shown. What has nothing to check is named, and is no
error: networks without devinfo, Pods that do not run yet, other drivers' claims and, if there
are several documents, those of other kinds. Of a Helm chart the templates are left out. Plugins
are looked for in --cni-path and asked for their CNI versions, unless none of its directories is
on this machine.

Exits with 1 if there is an error, or with --strict a warning.`

const validateExample = `  devinfoctl validate /var/run/k8s.cni.cncf.io/devinfo/cni/sriov-net-3f1c2d_net1
  kubectl get network-attachment-definition -A -o yaml | devinfoctl validate -
  kubectl get pod dpdk-0 -o json | devinfoctl validate -
  devinfoctl validate --strict --allow-claim-config macvlan,host-local deploy/
  devinfoctl validate --kind cni-config /etc/cni/net.d/10-net.conflist`

// validation is what validate prints of one document.
type validation struct {
	File string `json:"file"` // "-" is standard input
	validate.Document
}

// wrong counts what is wrong; with strict warnings are.
func (v validation) wrong(strict bool) int {
	if strict {
		return len(v.Findings)
	}
	return v.Errors()
}

// validateFlags are the flags of validate.
type validateFlags struct {
	kind       string
	strict     bool
	claimTypes []string
}

func validateCommand(t *tool) *cobra.Command {
	var f validateFlags
	var names []string
	for _, k := range validate.Kinds {
		names = append(names, string(k))
	}
	cmd := &cobra.Command{
		Use:     "validate FILE|DIRECTORY|-...",
		Short:   "what is wrong in device-info files, network-statuses and configurations",
		Long:    validateHelp,
		Example: validateExample,
		Args: func(cmd *cobra.Command, args []string) error {
			return commandline.Args(1, "FILE")(cmd, args[:min(1, len(args))])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			signal.Reset(os.Interrupt, syscall.SIGTERM) // reading may take for ever, and there is nothing to clean up
			return t.validate(cmd.Context(), args, f)
		},
	}
	choice(cmd, cmd.Flags(), &f.kind, "kind", "", "", "what it is: "+strings.Join(names, ", "), names...)
	cmd.Flags().StringSliceVar(&f.claimTypes, "allow-claim-config", nil, "the nodes' cni-dra-driver --allow-claim-config: which plugins a claim may bring; without it a warning says that nodes may allow none")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "warnings are errors")
	t.cniPathFlag(cmd)
	return cmd
}

func (t *tool) validate(ctx context.Context, args []string, f validateFlags) error {
	files, many, err := filesIn(args)
	if err != nil {
		return remedy.For(err, "name a file that can be read, or - for standard input")
	}
	checker := validate.Checker{ClaimTypes: f.claimTypes}
	checker.Find, checker.Versions = plugins(ctx, t.pluginDirs())
	texts := map[string][]byte{}
	checker.Classes = validate.Classes{}
	for _, name := range files {
		if texts[name], err = t.read(name); err != nil {
			return remedy.For(err, "name a file that can be read, or - for standard input")
		}
		maps.Copy(checker.Classes, validate.ClassesIn(texts[name]))
	}
	all := []validation{}
	for _, name := range files {
		documents, err := checker.CheckAll(texts[name], validate.Kind(f.kind))
		if errors.Is(err, validate.ErrKind) && many {
			continue
		} else if errors.Is(err, validate.ErrKind) {
			return remedy.Misuse("say what it is by --kind; rules of cni-dra-driver are for cni-dra-driver inventory --config", "%s: %w", name, err)
		} else if err != nil {
			return err
		}
		for _, d := range documents {
			all = append(all, validation{name, d})
		}
	}
	if checker.Find == nil && slices.ContainsFunc(all, func(v validation) bool { return v.Kind == validate.CNIConfig }) {
		t.warn("plugins are not looked for: no directory of --cni-path %s is on this machine", t.pluginDirs())
	}
	err = t.print(map[string]any{"documents": all}, func(w io.Writer) {
		for _, v := range all {
			t.validationTable(w, v, f.strict)
		}
		if len(all) == 0 {
			fmt.Fprintln(w, "nothing to check")
		}
	})
	if err == nil && slices.ContainsFunc(all, func(v validation) bool { return v.wrong(f.strict) > 0 }) {
		return remedy.ErrFound
	}
	return err
}

// filesIn are the files that the arguments name; many says that they may hold what is of
// no kind.
func filesIn(args []string) (files []string, many bool, err error) {
	many = len(args) > 1
	for _, arg := range args {
		stat, err := os.Stat(arg)
		if arg == "-" || err != nil || !stat.IsDir() { // reading it says what is wrong
			files = append(files, arg)
			continue
		}
		many = true
		err = filepath.WalkDir(arg, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() && isTemplates(path) {
				return fs.SkipDir
			}
			if err == nil && !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml", ".conf", ".conflist"}, filepath.Ext(path)) {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return nil, many, err
		}
	}
	return files, many, nil
}

// isTemplates says that a directory holds a Helm chart's templates, which are not yet YAML.
func isTemplates(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "../Chart.yaml"))
	return err == nil && filepath.Base(dir) == "templates"
}

// read reads no more than it takes to see that a text is too large.
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

// plugins looks for plugins, and asks them for their versions; nil = none of the
// directories is there. Each plugin is asked once.
func plugins(ctx context.Context, cniPath string) (find func(string) error, versions func(string) []string) {
	dirs := slices.DeleteFunc(filepath.SplitList(cniPath), func(dir string) bool {
		stat, err := os.Stat(dir)
		return err != nil || !stat.IsDir()
	})
	if len(dirs) == 0 {
		return nil, nil
	}
	known, exec := map[string][]string{}, &cniexec.Exec{}
	return func(name string) error {
			_, err := exec.FindInPath(name, dirs)
			return err
		}, func(name string) []string {
			if list, asked := known[name]; asked {
				return list
			}
			if path, err := exec.FindInPath(name, dirs); err == nil {
				known[name] = doctor.Executable(ctx, path).CNIVersions
			}
			return known[name]
		}
}

func (t *tool) validationTable(w io.Writer, v validation, strict bool) {
	file := v.File
	if v.Name != "" {
		file += ": " + v.Name
	}
	what, errs := string(v.Kind), v.wrong(strict)
	switch {
	case v.Skipped != "" && len(v.Findings) == 0:
		fmt.Fprintf(w, "%s: not checked: %s\n", printable(file), v.Skipped)
		return
	case what == "":
		what = "unreadable"
	}
	if v.Guessed != "" {
		what += " (" + v.Guessed + ")"
	}
	if len(v.Findings) == 0 {
		fmt.Fprintf(w, "%s: %s: %s\n", printable(file), what, t.paint(green, "valid"))
		return
	}
	fmt.Fprintf(w, "%s: %s: %s, %s\n", printable(file), what, doctor.Count(errs, "error"), doctor.Count(len(v.Findings)-errs, "warning"))
	for _, f := range v.Findings {
		level := t.paint(red, "error")
		if f.Warning && !strict {
			level = t.paint(yellow, "warning")
		}
		if f.Line > 0 {
			level = fmt.Sprintf("line %d: %s", f.Line, level)
		}
		fmt.Fprintf(w, "  %s: %s\n", level, f)
	}
}
