package deploy

import (
	"fmt"
	"html"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// The picture shows this row of the dashboard. A unit of Grafana's grid has unitX times unitY pixels.
const (
	pictured     = "Claims (cni-dra-driver)"
	unitX, unitY = 38, 21
)

// pictureStyle follows the reader's colour scheme, with the colours of test/picture. c0 to c5 are those of the series.
const pictureStyle = `text{font:11px sans-serif;fill:#59636e}.title{font-weight:bold;fill:#1f2328}.end{text-anchor:end}.mid{text-anchor:middle}
.page{fill:#f6f8fa}.panel{fill:#fff;stroke:#d1d9e0}path{fill:none;stroke-width:1.5}.grid{stroke:#d1d9e0;stroke-width:.5}
.c0{stroke:#1a7f37}.c1{stroke:#0969da}.c2{stroke:#bc4c00}.c3{stroke:#8250df}.c4{stroke:#9a6700}.c5{stroke:#cf222e}
@media(prefers-color-scheme:dark){text{fill:#9198a1}.title{fill:#f0f6fc}.page{fill:#010409}.panel{fill:#0d1117;stroke:#3d444d}.grid{stroke:#3d444d}
.c0{stroke:#3fb950}.c1{stroke:#58a6ff}.c2{stroke:#db6d28}.c3{stroke:#a371f7}.c4{stroke:#d29922}.c5{stroke:#f85149}}`

func TestPictureOfDashboardIsCurrent(t *testing.T) {
	all, drawn := written(t, difftest.Read(t, "testdata/dashboard.txt")), ""
	inside, top, bottom := false, 0, 0
	for _, p := range grafana(t).Panels {
		switch {
		case p.Type == "row" && p.Title == pictured:
			inside, top = true, p.GridPos.Y+p.GridPos.H
		case p.Type == "row":
			inside = false
		case inside:
			p.GridPos.Y -= top
			bottom = max(bottom, p.GridPos.Y+p.GridPos.H)
			drawn += p.draw(t, all)
		}
	}
	text := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>%s</style>
<rect class="page" width="100%%" height="100%%"/>
%s</svg>
`, 24*unitX+8, bottom*unitY+8, "The dashboard's row "+pictured, pictureStyle, drawn)
	goldentest.File(t, docs+"/dashboard.svg", text)
}

// A curve is a series of a panel.
type curve struct {
	legend string
	points []promql.FPoint
}

// curves evaluates the expressions of a panel in each minute of the hour, and returns the greatest value too.
func (p panel) curves(t *testing.T, all []storage.Series) (list []curve, most float64) {
	t.Helper()
	for _, target := range p.Targets {
		for _, s := range ask(t, all, variables.Replace(target.Expr), 0, 59*time.Minute) {
			legend := placeholder.ReplaceAllStringFunc(target.LegendFormat, func(label string) string { return s.Metric.Get(strings.Trim(label, "{}")) })
			points := slices.DeleteFunc(s.Floats, func(p promql.FPoint) bool { return math.IsNaN(p.F) }) // no calls in this time
			list = append(list, curve{legend, points})
			for _, point := range points {
				most = max(most, point.F)
			}
		}
	}
	if len(list) == 0 || len(list) > 6 {
		t.Fatalf("%s has %d series", p.Title, len(list))
	}
	return list, most
}

// draw returns a panel: its title, the axes, the curves, and their legend below them.
func (p panel) draw(t *testing.T, all []storage.Series) string {
	t.Helper()
	unit, known := map[string]string{"short": "", "s": " s", "ops": " ops/s"}[p.FieldConfig.Defaults.Unit]
	if !known {
		t.Fatalf("%s: unit %s", p.Title, p.FieldConfig.Defaults.Unit)
	}
	curves, most := p.curves(t, all)
	var out strings.Builder
	x, y, w, h := p.GridPos.X*unitX+8, p.GridPos.Y*unitY+8, p.GridPos.W*unitX-8, p.GridPos.H*unitY-8
	fmt.Fprintf(&out, `<rect class="panel" x="%d" y="%d" width="%d" height="%d" rx="3"/><text class="title" x="%d" y="%d">%s</text>`+"\n",
		x, y, w, h, x+10, y+18, html.EscapeString(p.Title))
	under := y + h - 8 // the last line of the legend
	for n, at := len(curves)-1, x+w; n >= 0; n-- {
		wide := 30 + 13*len(curves[n].legend)/2
		if at -= wide; at < x {
			at, under = x+w-wide, under-15
		}
		fmt.Fprintf(&out, `<path class="c%d" d="M%d %dh12"/><text x="%d" y="%d">%s</text>`+"\n", n, at, under-4, at+16, under, html.EscapeString(curves[n].legend))
	}
	left, right, low, high := float64(x+72), float64(x+w-14), float64(under-32), float64(y+34)
	step := roundStep(max(most/3, 0.01))
	limit := step * math.Ceil(most/step)
	for value := 0.0; value <= limit; value += step {
		at := low - (low-high)*value/limit
		fmt.Fprintf(&out, `<path class="grid" d="M%.0f %.1fH%.0f"/><text class="end" x="%.0f" y="%.1f">%.4g%s</text>`+"\n", left, at, right, left-6, at+4, value, unit)
	}
	for minute := 0; minute < 60; minute += 15 {
		fmt.Fprintf(&out, `<text class="mid" x="%.0f" y="%.0f">0:%02d</text>`+"\n", left+(right-left)*float64(minute)/59, low+14, minute)
	}
	for n, c := range curves {
		path, last := "", int64(-1)
		for _, point := range c.points {
			minute := point.T / time.Minute.Milliseconds()
			path += fmt.Sprintf("%s%.1f %.1f", map[bool]string{true: "L", false: "M"}[minute == last+1 && last >= 0], left+(right-left)*float64(minute)/59, low-(low-high)*point.F/limit)
			last = minute
		}
		fmt.Fprintf(&out, `<path class="c%d" d="%s"/>`+"\n", n, path)
	}
	return out.String()
}

// roundStep returns the next of 1, 2, 5 and their products with powers of ten.
func roundStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	return power * []float64{1, 2, 5, 10}[sort.SearchFloat64s([]float64{1, 2, 5}, least/power)]
}
