package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
)

// A row is a command, and what it costs.
type row struct {
	name string
	args []string // of kubectl devinfo, or of kubectl get if of is ""
	of   string   // the row that it is compared with
	show int      // lines that it prints at least
	gate gate
	cost
}

// A gate is what a command may cost; 0 = that does not matter.
type gate struct {
	ratio      float64 // to the seconds of the other row
	peak, read float64 // MB
	requests   int
	unread     string // a resource that is not read
}

// rows are the table. X is the MAC of a pod's first attachment, and ADDRESS its VF.
func (f *fleet) rows() []*row {
	at := min(f.pods-1, f.pods/2)
	for at > 0 && !f.claimed(at) {
		at--
	}
	pod, space, node := f.name(at), f.space(at), f.node(at)
	slices, requests := "resourceslices", 2
	if f.nodes <= 50 { // so many nodes' slices are read
		slices, requests = "", 0
	}
	perNode, perSpace := f.pods/f.nodes, min(f.pods, podsOfSpace)
	return []*row{
		{name: "kubectl get pod NAME", args: []string{"pod", pod, "-n", space}, show: 2},
		{name: "devinfo pod NAME", args: []string{"pod", pod, "-n", space}, of: "kubectl get pod NAME", show: 20, gate: gate{peak: 80, read: 1, requests: 3}},
		{name: "kubectl get pods -n NS", args: []string{"pods", "-n", space}, show: perSpace / 2},
		{name: "devinfo -n NS", args: []string{"-n", space}, of: "kubectl get pods -n NS", show: perSpace, gate: gate{peak: 100, read: 4, requests: requests, unread: slices}},
		{name: "kubectl get pods -A, of a node", args: []string{"pods", "-A", "--field-selector", "spec.nodeName=" + node}, show: perNode},
		{name: "devinfo who ADDRESS --node N", args: []string{"who", hosttxttest.VF(f.vf(at, 0)), "--node", node}, of: "kubectl get pods -A, of a node", show: 2, gate: gate{peak: 100, read: 4, requests: 4 + perNode}},
		{name: "kubectl get pods -A", args: []string{"pods", "-A"}, show: f.pods},
		{name: "devinfo who X", args: []string{"who", f.mac(at, 0)}, of: "kubectl get pods -A", show: 2, gate: gate{ratio: 1.3, peak: 300, unread: slices}},
		{name: "devinfo -A", args: []string{"-A"}, of: "kubectl get pods -A", show: 2 * f.pods, gate: gate{ratio: 1.3, peak: 300, unread: slices}},
	}
}

// compare measures all rows, and prints them.
func (f *fleet) compare(ctx context.Context, r *runner, out io.Writer) error {
	all, by := f.rows(), map[string]*row{}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "command\tseconds\tx kubectl\tpeak MB\tread MB\trequests\t")
	missed := 0
	for _, row := range all {
		command := append(kubectl(), row.args...)
		if row.of != "" {
			command = append([]string{r.devinfo}, row.args...)
		}
		var err error
		if row.cost, err = r.cost(ctx, command); err != nil {
			return err
		}
		by[row.name] = row
		if row.lines < row.show {
			return fmt.Errorf("%s: prints %d lines, not %d", strings.Join(command, " "), row.lines, row.show)
		}
		misses := row.misses(by[row.of])
		missed += len(misses)
		fmt.Fprintln(w, row.line(by[row.of])+"\t"+strings.Join(misses, ", "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if missed > 0 {
		return errors.New("gates missed")
	}
	return nil
}

func (r *row) line(of *row) string {
	ratio := ""
	if of != nil {
		ratio = fmt.Sprintf("%.2f", r.seconds/of.seconds)
	}
	var requests []string
	for _, what := range slices.Sorted(maps.Keys(r.requests)) {
		requests = append(requests, fmt.Sprint(r.requests[what], " ", what))
	}
	return fmt.Sprintf("%s\t%.2f\t%s\t%.0f\t%.2f\t%s", r.name, r.seconds, ratio, r.peak, r.read, strings.Join(requests, ", "))
}

// misses are the gates that are missed.
func (r *row) misses(of *row) (list []string) {
	above := func(what string, is, gate float64) {
		if gate > 0 && is > gate {
			list = append(list, fmt.Sprintf("MISS: %s > %v", what, gate))
		}
	}
	if of != nil {
		above("x kubectl", r.seconds/of.seconds, r.gate.ratio)
	}
	above("peak MB", r.peak, r.gate.peak)
	above("read MB", r.read, r.gate.read)
	sum := 0
	for what, n := range r.requests {
		sum += n
		if what == r.gate.unread {
			list = append(list, "MISS: reads "+what)
		}
	}
	above("requests", float64(sum), float64(r.gate.requests))
	return list
}
