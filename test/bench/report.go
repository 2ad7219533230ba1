package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// machine returns processor, kernel, Go version and load. On an otherwise idle machine the benchmark itself causes a
// load of about 1.
func machine() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	model := runtime.GOARCH
	if _, rest, ok := strings.Cut(string(info), "model name"); ok {
		line, _, _ := strings.Cut(rest, "\n")
		model = strings.Trim(line, "\t :")
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	busy, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%d x %s, Linux %s, %s; load average %s", runtime.NumCPU(), model, bytes.TrimSpace(release), runtime.Version(), busy)
}

// A row is one measurement. A row without a gate is only for comparison.
type row struct {
	Metric   string
	Measured float64 // in Unit
	Unit     string
	Gate     float64
}

// A table collects the measurements of several runs.
type table struct {
	rows []row
	runs map[string][]float64 // by metric
}

func (t *table) add(r row) {
	if t.runs == nil {
		t.runs = map[string][]float64{}
	}
	if t.runs[r.Metric] == nil {
		t.rows = append(t.rows, r)
	}
	t.runs[r.Metric] = append(t.runs[r.Metric], r.Measured)
}

// settle sets each row to the median of its runs, and returns the number of rows above their gate.
func (t *table) settle() (missed int) {
	for n := range t.rows {
		r := &t.rows[n]
		r.Measured = median(t.runs[r.Metric])
		if r.Gate > 0 && r.Measured > r.Gate {
			missed++
		}
	}
	return missed
}

func (t *table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "metric\tmedian\truns\tgate\t\n")
	for _, gated := range []bool{true, false} {
		for _, r := range t.rows {
			if (r.Gate > 0) == gated {
				runs := t.runs[r.Metric]
				fmt.Fprintf(w, "%s\t%.2f %s\t%.2f-%.2f\t%s\n", r.Metric, r.Measured, r.Unit, slices.Min(runs), slices.Max(runs), r.verdict())
			}
		}
	}
	w.Flush()
	fmt.Fprintf(out, "%d runs of %d rounds on %s\n", *runs, *rounds, machine())
}

// verdict returns the gate and the result, as columns.
func (r row) verdict() string {
	switch {
	case r.Gate == 0:
		return "\t"
	case r.Measured > r.Gate:
		return fmt.Sprintf("<= %.2f\tMISS", r.Gate)
	}
	return fmt.Sprintf("<= %.2f\tok", r.Gate)
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
