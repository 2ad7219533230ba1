package deploy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"devinfo-cni.io/test/difftest"
)

// A set iterates over series for the engine.
type set struct {
	list []storage.Series
	next int
}

func (s *set) Next() bool                        { s.next++; return s.next <= len(s.list) }
func (s *set) At() storage.Series                { return s.list[s.next-1] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// written parses series in the notation of promtool's tests, with one sample per minute. # begins a comment.
func written(t *testing.T, text string) (all []storage.Series) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line[0] == '#' {
			continue
		}
		lset, values, err := parser.ParseSeriesDesc(strings.TrimSpace(line))
		difftest.Must(t, err)
		var list []promql.FPoint
		for minute, v := range values {
			if !v.Omitted {
				list = append(list, promql.FPoint{T: int64(minute) * time.Minute.Milliseconds(), F: v.Value})
			}
		}
		all = append(all, promql.NewStorageSeries(promql.Series{Metric: lset, Floats: list}))
	}
	return all
}

// ask evaluates an expression with Prometheus' engine in each minute between two times after the first sample.
func ask(t *testing.T, all []storage.Series, expr string, from, to time.Duration) promql.Matrix {
	t.Helper()
	stored := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
		for _, s := range all {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
				found = append(found, s)
			}
		}
		return &set{list: found}
	}}}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: 5 * time.Minute})
	query, err := engine.NewRangeQuery(t.Context(), stored, nil, expr, time.Unix(0, 0).Add(from), time.Unix(0, 0).Add(to), time.Minute)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	matrix, err := query.Exec(t.Context()).Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return matrix
}

// fires returns the instances that an alert fires for at a time. Its expression must have been true in each minute of
// the rule's "for".
func fires(t *testing.T, alert, series string, after time.Duration) (instances []string) {
	t.Helper()
	all := written(t, series)
	for _, r := range rules(t) {
		if r.Alert != alert {
			continue
		}
		minutes := int(time.Duration(r.For)/time.Minute) + 1
		for _, s := range ask(t, all, r.Expr, after-time.Duration(r.For), after) {
			if len(s.Floats) == minutes {
				instances = append(instances, s.Metric.Get("instance"))
			}
		}
	}
	return instances
}

func TestAlertsFireForFailuresOnly(t *testing.T) {
	text := difftest.Read(t, "testdata/alerts.txt")
	for _, c := range strings.Split(strings.TrimSpace(text), "\n\n")[1:] { // the first one explains
		title, series, _ := strings.Cut(c, "\n")
		words := strings.Fields(title)
		after, err := time.ParseDuration(words[1])
		difftest.Must(t, err)
		if got := fires(t, words[0], series, after); strings.Join(got, " ") != strings.Trim(words[2], "-") {
			t.Errorf("%s with %s: fires for %q", title, series, got)
		}
	}
}
