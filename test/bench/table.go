package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// A row is one measurement. Without a gate it is for comparison.
type row struct {
	metric        string
	measured      float64
	unit          string
	gate, stretch float64
}

type table struct {
	rows   []row
	missed int
}

func (t *table) add(r row) {
	t.rows = append(t.rows, r)
	if r.gate > 0 && r.measured > r.gate {
		t.missed++
	}
}

func (t *table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "metric\tmeasured\tgate\tstretch\t\n")
	for _, gated := range []bool{true, false} {
		for _, r := range t.rows {
			if (r.gate > 0) == gated {
				fmt.Fprintln(w, r)
			}
		}
	}
	w.Flush()
}

func (r row) String() string {
	verdict := "ok"
	switch {
	case r.gate == 0:
		return fmt.Sprintf("%s\t%.2f %s\t\t\t", r.metric, r.measured, r.unit)
	case r.measured > r.gate:
		verdict = "MISS"
	case r.measured <= r.stretch:
		verdict = "ok, stretch too"
	}
	stretch := ""
	if r.stretch > 0 {
		stretch = fmt.Sprintf("%.2f", r.stretch)
	}
	return fmt.Sprintf("%s\t%.2f %s\t<= %.2f\t%s\t%s", r.metric, r.measured, r.unit, r.gate, stretch, verdict)
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
