package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// A row is one measurement. A row without a gate is only for comparison.
type row struct {
	Metric   string  `json:"metric"`
	Measured float64 `json:"measured"` // in Unit
	Unit     string  `json:"unit"`
	Gate     float64 `json:"gate,omitzero"`
	Stretch  float64 `json:"stretch,omitzero"`
}

type table struct {
	rows   []row
	missed int
}

func (t *table) add(r row) {
	t.rows = append(t.rows, r)
	if r.Gate > 0 && r.Measured > r.Gate {
		t.missed++
	}
}

func (t *table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "metric\tmeasured\tgate\tstretch\t\n")
	for _, gated := range []bool{true, false} {
		for _, r := range t.rows {
			if (r.Gate > 0) == gated {
				fmt.Fprintln(w, r)
			}
		}
	}
	w.Flush()
}

func (r row) String() string {
	verdict := "ok"
	switch {
	case r.Gate == 0:
		return fmt.Sprintf("%s\t%.2f %s\t\t\t", r.Metric, r.Measured, r.Unit)
	case r.Measured > r.Gate:
		verdict = "MISS"
	case r.Measured <= r.Stretch:
		verdict = "ok, stretch too"
	}
	stretch := ""
	if r.Stretch > 0 {
		stretch = fmt.Sprintf("%.2f", r.Stretch)
	}
	return fmt.Sprintf("%s\t%.2f %s\t<= %.2f\t%s\t%s", r.Metric, r.Measured, r.Unit, r.Gate, stretch, verdict)
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
