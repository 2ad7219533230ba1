package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/verify"
)

const validateHelp = `Says all that is wrong in a file, or in standard input (-), each with its path, its
value and the rule. JSON and YAML are read. The kinds are

  device-info     a device-info file (Device Information Specification 1.1.0)
  network-status  the value of a pod's annotation k8s.v1.cni.cncf.io/network-status, or
                  the Pod
  cni-config      a CNI configuration, or a list of them, in which devinfo is a plugin,
                  or a NetworkAttachmentDefinition

Without --kind it is guessed, and said. Delegates are looked for in --cni-path, unless
none of its directories is on this machine.

Exits with 1 if there is an error; warnings alone are none.`

const validateExample = `  devinfoctl validate /var/run/k8s.cni.cncf.io/devinfo/cni/sriov-net-3f1c2d_net1
  kubectl get network-attachment-definition sriov-net -o yaml | devinfoctl validate -
  kubectl get pod dpdk-0 -o json | devinfoctl validate -
  devinfoctl validate --kind cni-config /etc/cni/net.d/10-net.conflist`

// validation is what validate prints.
type validation struct {
	File string `json:"file"` // "-" is standard input
	*verify.Report
}

func validateCommand(t *tool) *cobra.Command {
	var kind, cniPath string
	var names []string
	for _, k := range verify.Kinds {
		names = append(names, string(k))
	}
	cmd := &cobra.Command{
		Use:     "validate FILE|-",
		Short:   "all that is wrong in a device-info file, a network-status or a configuration",
		Long:    validateHelp,
		Example: validateExample,
		Args:    exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := oneOf("kind", kind, names...); kind != "" && err != nil {
				return err
			}
			return t.validate(args[0], verify.Kind(kind), cniPathOr(cniPath))
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "what it is: "+strings.Join(names, ", "))
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	cniPathFlag(cmd, &cniPath)
	return cmd
}

func (t *tool) validate(name string, kind verify.Kind, cniPath string) error {
	text, err := t.read(name)
	if err != nil {
		return blind(err, "name a file that can be read, or - for standard input")
	}
	checker := verify.Checker{Plugin: pluginName, Find: finderIn(cniPath)}
	report, err := checker.Check(text, kind)
	if errors.Is(err, verify.ErrKind) {
		return usage("say what it is by --kind", "%s: %w", name, err)
	} else if err != nil {
		return err
	}
	if report.Kind == verify.CNIConfig && checker.Find == nil {
		t.warn("delegates are not looked for: no directory of --cni-path %s is on this machine", cniPath)
	}
	v := validation{name, report}
	if err := t.print(v, func(w *tabwriter.Writer) { t.validationTable(w, v) }); err != nil {
		return err
	}
	if report.Errors() > 0 {
		return errFound
	}
	return nil
}

// read reads no more than is needed to see that it is too much.
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
	return io.ReadAll(io.LimitReader(from, verify.Limit+1))
}

// finderIn looks for plugins; nil = none of the directories is there.
func finderIn(cniPath string) func(string) error {
	dirs := slices.DeleteFunc(filepath.SplitList(cniPath), func(dir string) bool {
		stat, err := os.Stat(dir)
		return err != nil || !stat.IsDir()
	})
	if len(dirs) == 0 {
		return nil
	}
	return func(name string) error {
		_, err := invoke.FindInPath(name, dirs)
		return err
	}
}

func (t *tool) validationTable(w *tabwriter.Writer, v validation) {
	what, errs := string(v.Kind), v.Errors()
	if what == "" {
		what = "unreadable"
	}
	if v.Guessed != "" {
		what += " (" + v.Guessed + ")"
	}
	if len(v.Findings) == 0 {
		fmt.Fprintf(w, "%s: %s: valid\n", v.File, what)
		return
	}
	fmt.Fprintf(w, "%s: %s: %s, %s\n", v.File, what, count(errs, "error"), count(len(v.Findings)-errs, "warning"))
	for _, f := range v.Findings {
		level, value := t.paint(red, "error"), f.Value
		if f.Warning {
			level = t.paint(yellow, "warning")
		}
		if value == "" {
			value = "missing"
		}
		if f.Path == "$" && f.Value == "" {
			fmt.Fprintf(w, "  %s: %s\n", level, f.Rule)
			continue
		}
		fmt.Fprintf(w, "  %s: %s: %s: %s\n", level, f.Path, value, f.Rule)
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
