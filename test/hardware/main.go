// Devinfo-try finds out on a node whether devinfo works with its NIC. It runs checks on free functions that the user names,
// restores them, and writes one file to send: see docs/report.md. The plugins that it runs are in a zip archive at the end of
// the executable (see hardware.mk), so that one file is enough.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"devinfo-cni.io/devinfo/pci"
)

const help = `devinfo-try [FLAGS] [FUNCTION...]

Without a FUNCTION it lists the functions that it could use, and why not the others, and changes nothing.
A FUNCTION is the PCI address of a free VF, such as 0000:3b:00.2. Name two VFs of one PF to exchange frames between them.
A whole function, which may carry the node's own traffic, must be named twice.

The exit status is 0 if no check failed, 1 if one did, and 2 if nothing was tried.

`

type options struct {
	yes, restore bool
	kubelet      string // socket of its PodResources API
	report       string
	only         *regexp.Regexp // names of checks
	functions    []string
}

func main() {
	var o options
	flag.BoolVar(&o.yes, "yes", false, "do not ask")
	flag.BoolVar(&o.restore, "restore", false, "restore what a killed run has left, also after a reboot, and end")
	flag.StringVar(&o.report, "o", "devinfo-try.txtar", "`file` of the report; an existing one is replaced")
	flag.StringVar(&o.kubelet, "pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock", "`socket` of the kubelet's pod resources API")
	only := flag.String("only", "", "run the checks whose names match the `regexp`, such as vfio")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, help)
		flag.PrintDefaults()
	}
	flag.Parse()
	o.functions = flag.Args()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		fmt.Fprintln(os.Stderr, "devinfo-try: --only:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	failed, err := run(ctx, o, os.Stdin, os.Stdout)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "devinfo-try:", err)
		os.Exit(2)
	case failed:
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, in io.Reader, out io.Writer) (failed bool, err error) {
	n, err := openNode(o.kubelet)
	if err != nil {
		return false, err
	}
	if len(o.functions) == 0 && !o.restore {
		return false, n.list(ctx, out)
	}
	unlock, err := n.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	if different, err := n.undo(ctx, out); err != nil || o.restore {
		return different, err
	}
	targets, err := n.targets(ctx, o.functions)
	if err != nil {
		return false, err
	}
	announce(out, targets)
	if !o.yes && !agrees(in, out) {
		return false, errors.New("nothing was done")
	}
	if err := n.unpack(); err != nil {
		return false, err
	}
	results, err := n.try(ctx, targets, o.only, out)
	if err != nil {
		return false, err
	}
	if err := n.report(o.report, targets, results); err != nil {
		return false, fmt.Errorf("the checks are done, but their report %s cannot be written: %w", o.report, err)
	}
	fmt.Fprintf(out, "\nThe report is %s: read it, and send it as docs/report.md says.\n", o.report)
	if ctx.Err() != nil {
		return true, errors.New("interrupted; the functions are as before")
	}
	return slices.ContainsFunc(results, func(r result) bool { return r.Outcome == failedOutcome }), nil
}

// targets returns the functions that the user has named, if all of them are free.
func (n *node) targets(ctx context.Context, names []string) (list []*target, err error) {
	times := map[string]int{}
	for _, name := range names {
		address, err := pci.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("%q: not a PCI address such as 0000:3b:00.2", name)
		}
		times[address.String()]++
	}
	list, err = n.look(ctx, slices.Collect(maps.Keys(times))...)
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		switch {
		case t.why != "":
			return nil, fmt.Errorf("%s cannot be used: %s", t.PCI, t.why)
		case t.Parent == nil && times[t.PCI] < 2:
			return nil, fmt.Errorf("%s is a whole function, not a VF: name it twice if the node does not need it", t.PCI)
		}
		delete(times, t.PCI)
	}
	for name := range times {
		return nil, fmt.Errorf("%s: the node has no such network function", name)
	}
	return list, nil
}

func announce(out io.Writer, targets []*target) {
	fmt.Fprintln(out, "These functions will be tried:")
	for _, t := range targets {
		fmt.Fprintf(out, "  %s  %s\n", t.PCI, t.describe())
	}
	fmt.Fprint(out, `Each one moves into network namespaces of this program, gets other settings (MAC, MTU, flags; on its PF a VLAN, trust and
a rate, if it is a VF). A VF gets its driver again, and the driver vfio-pci for a moment if nothing shares its IOMMU group.
Then it is restored, and compared with before. The program changes no other function, no eswitch and no mode of RDMA. It takes about five minutes.
`)
	if len(pairs(targets)) > 0 {
		fmt.Fprintf(out, "Two VFs of one PF exchange frames with MACs %s and %s and EtherType %#x. They may reach the wire.\n", ownMAC(0), ownMAC(1), experiment)
	}
}

func agrees(in io.Reader, out io.Writer) bool {
	fmt.Fprint(out, "Go on? [y/N] ")
	answer, _ := bufio.NewReader(in).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}
