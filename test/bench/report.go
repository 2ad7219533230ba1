package main

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// save writes the table as bench.json and bench.svg.
func (t *table) save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	machine, err := describeMachine()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(struct {
		Machine string `json:"machine"`
		Runs    int    `json:"runs"`
		Rounds  int    `json:"rounds"` // of each run
		Rows    []row  `json:"rows"`
	}{machine, *runs, *rounds, t.rows}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "bench.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bench.svg"), t.picture(machine), 0o644)
}

// describeMachine returns processor, kernel, Go version and load. On an otherwise idle machine the benchmark itself
// causes a load of about 1.
func describeMachine() (string, error) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	model := runtime.GOARCH
	if _, rest, ok := strings.Cut(string(info), "model name"); ok {
		line, _, _ := strings.Cut(rest, "\n")
		model = strings.Trim(line, "\t :")
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	busy, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%d x %s, Linux %s, %s; load average %s", runtime.NumCPU(), model, unix.ByteSliceToString(name.Release[:]), runtime.Version(), busy), nil
}

// picture draws the rows with a gate as bars. All gates are at the same position.
func (t *table) picture(machine string) []byte {
	const left, gate, height, width = 260, 360, 24, 900
	var b strings.Builder
	y := 40
	bars := 0
	for _, r := range t.rows {
		if r.Gate == 0 {
			continue
		}
		bars++
		colour := "#3a7d44"
		if r.Measured > r.Gate {
			colour = "#b3261e"
		}
		length := min(gate*r.Measured/r.Gate, width-left-140)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, y+15, html.EscapeString(strings.TrimSpace(r.Metric)))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.0f" height="%d" fill="%s"/>`+"\n", left, y+3, length, height-6, colour)
		fmt.Fprintf(&b, `<text x="%.0f" y="%d">%.2f %s (at most %g)</text>`+"\n", left+max(length, gate)+8, y+15, r.Measured, html.EscapeString(r.Unit), r.Gate)
		y += height
	}
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="white"/>
<text x="12" y="22" font-size="14">make bench: less is better; the line is the limit</text>
%s<line x1="%d" y1="36" x2="%d" y2="%d" stroke="black"/>
<text x="12" y="%d" fill="#555">%s</text>
</svg>
`, width, y+36, b.String(), left+gate, left+gate, y+4, y+24, html.EscapeString(machine))
}

// A row is one measurement. A row without a gate is only for comparison.
type row struct {
	Metric   string  `json:"metric"`
	Measured float64 `json:"measured"` // in Unit
	Unit     string  `json:"unit"`
	Gate     float64 `json:"gate,omitzero"`
	Stretch  float64 `json:"stretch,omitzero"`
}

// A table collects the measurements of several runs.
type table struct {
	rows []row
	runs map[string][]float64 // by key
}

// key identifies a row: the last row of discoveries is a ratio and a time.
func (r row) key() string { return r.Metric + " in " + r.Unit }

func (t *table) add(r row) {
	if t.runs == nil {
		t.runs = map[string][]float64{}
	}
	if t.runs[r.key()] == nil {
		t.rows = append(t.rows, r)
	}
	t.runs[r.key()] = append(t.runs[r.key()], r.Measured)
}

// settle sets each row to the median of its runs, and returns the number of rows above their gate.
func (t *table) settle() (missed int) {
	for n := range t.rows {
		r := &t.rows[n]
		r.Measured = median(t.runs[r.key()])
		if r.Gate > 0 && r.Measured > r.Gate {
			missed++
		}
	}
	return missed
}

func (t *table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "metric\tmedian\truns\tgate\tstretch\t\n")
	for _, gated := range []bool{true, false} {
		for _, r := range t.rows {
			if (r.Gate > 0) == gated {
				runs := t.runs[r.key()]
				fmt.Fprintf(w, "%s\t%.2f %s\t%.2f-%.2f\t%s\n", r.Metric, r.Measured, r.Unit, slices.Min(runs), slices.Max(runs), r.verdict())
			}
		}
	}
	w.Flush()
}

// verdict returns the gate, the stretch goal and the result, as columns.
func (r row) verdict() string {
	verdict := "ok"
	switch {
	case r.Gate == 0:
		return "\t\t"
	case r.Measured > r.Gate:
		verdict = "MISS"
	case r.Measured <= r.Stretch:
		verdict = "ok, stretch too"
	}
	stretch := ""
	if r.Stretch > 0 {
		stretch = fmt.Sprintf("%.2f", r.Stretch)
	}
	return fmt.Sprintf("<= %.2f\t%s\t%s", r.Gate, stretch, verdict)
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
