package main

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"runtime"
	"strings"

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
