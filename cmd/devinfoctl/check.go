package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/check"
	"devinfo-cni.io/pkg/ctl/clierr"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/dra/state"
)

const checkHelp = `Compares what ADD left with what is there now, as the plugin's CHECK does, and says
for each fact what the journal, the device-info file and the kernel have, and where
the kernel has it.

The argument is a pod (NAME or NAMESPACE/NAME), a network, a container, or one attachment:
NETWORK/CONTAINER/INTERFACE, NETWORK/CONTAINER or POD/INTERFACE with its namespace. Any
unambiguous beginning of a container's ID will do. A device stands for the attachments that
holder shows. Without an argument all are checked.

For what cni-dra-driver attached, it also shows the error of a failed DEL; without an
argument, also what is wrong with its rules of the node's devices (--devices), as it has
found when it was last started.

The verdicts are
  same          journal, file and kernel agree
  changed       an optional fact is not what it was: CHECK warns
  declared      the kernel says otherwise, and the configuration overrules it
  differs       the device, or the interface, is another one: CHECK fails
  gone          it was there at ADD: CHECK fails
  not stated    the kernel says nothing of it: declared, or from an earlier file
  not recorded  the file says nothing of it
  unknown       it cannot be looked at: without root, or from within a container

CHECK fails where a problem is shown, and for an ADD that was killed: check does not wait for
one that may still run, as CHECK does, and shows no problem.

What CHECK compares beyond that is listed as not compared. As in inspect, the source of a
representor says whether sriovnet finds the same one.

Exits with 1 if an attachment or a rule is not as it should be, else with 3 if one could not be
looked at, or not wholly.`

func checkCommand(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:   "check [POD|NETWORK|CONTAINER|ATTACHMENT|DEVICE]",
		Short: "compare what ADD left with what is there now, and explain it",
		Long:  checkHelp,
		Example: `  devinfoctl check
  devinfoctl check shop/dpdk-0
  devinfoctl check sriov-net
  devinfoctl check 3f1c2d
  devinfoctl check sriov-net/3f1c2d/net1 -o json
  devinfoctl --capture node.txtar check`,
		Args:              commandline.Args(0, "ATTACHMENT"),
		ValidArgsFunction: t.completeAttachments,
		RunE: t.onHost(func(h *host, args []string) error {
			list, err := h.Recorded()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				if list, err = node.Choose(list, args[0]); err != nil {
					return err
				}
			}
			err = t.check(h, list)
			if len(args) == 0 {
				offer, failed := t.offer(h)
				err = t.worst(err, cmp.Or(failed, checkOffer(offer)))
			}
			return err
		}),
	}
}

// worst is what is wrong, rather than what could not be read, which is a warning then.
func (t *tool) worst(attachments, offer error) error {
	e := new(clierr.Error)
	if wrong := errors.As(offer, &e) && e.Code == clierr.Found; offer != nil && !wrong && errors.Is(attachments, clierr.ErrFound) {
		t.warn("%v", offer)
		return attachments
	}
	return cmp.Or(offer, attachments)
}

// checkOffer fails if the rules of the node's devices are invalid.
func checkOffer(o *state.Offer) error {
	if o == nil || o.Problem == "" {
		return nil
	}
	return &clierr.Error{Err: errors.New("cni-dra-driver: " + o.Problem), Remedy: "correct the rules: cni-dra-driver does not start with these", Code: clierr.Found}
}

func (t *tool) check(h *host, list []node.Attachment) error {
	h.Judge(list, true)
	verdicts := make([]*node.Comparison, len(list))
	for n, a := range list {
		verdicts[n] = a.Verdict
	}
	err := t.print(map[string]any{"attachments": verdicts}, func(w io.Writer) {
		for n, a := range list {
			if n > 0 {
				fmt.Fprintln(w)
			}
			t.comparisonTable(w, a)
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "no attachments")
		}
	})
	unknown := func(a node.Attachment) bool { return a.State == check.Unknown }
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(list, func(a node.Attachment) bool { return a.Verdict.Problem != "" && !unknown(a) }):
		return clierr.ErrFound
	case slices.ContainsFunc(list, unknown):
		return h.asRoot(errors.New("check: not everything could be looked at"), "run as root, and not in a container")
	}
	return nil
}

// verdictColour is "" for facts that are as they should be.
func verdictColour(v check.Verdict) colour {
	switch v {
	case check.Differs, check.Gone:
		return red
	case check.Changed, check.Unseen:
		return yellow
	}
	return ""
}

func (t *tool) comparisonTable(w io.Writer, a node.Attachment) {
	name, c := a.Short(), a.Verdict
	if a.Pod != "" {
		name = "pod " + a.Pod + ": " + name
	}
	fmt.Fprintf(w, "%s: %s\n", printable(name), t.state(a.State))
	t.say(w, "  ", "", "file", c.File)
	if len(c.Facts) > 0 {
		rows := [][]string{{"  FACT", "JOURNAL", "FILE", "NOW", "SOURCE", "VERDICT"}}
		var verdicts []colour
		for _, f := range c.Facts {
			rows, verdicts = append(rows, []string{"  " + f.Fact, f.Journal, f.File, f.Now, f.Source, string(f.Verdict)}), append(verdicts, verdictColour(f.Verdict))
		}
		t.printRows(w, rows, verdicts...)
	}
	t.say(w, "  ", red, "problem", c.Problem)
	t.say(w, "  ", "", "remedy", c.Remedy)
	t.say(w, "  ", yellow, "warning", c.Warnings...)
	t.say(w, "  ", "", "not compared", c.NotCompared...)
}
