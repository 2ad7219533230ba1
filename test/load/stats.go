package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Stats books what came of the calls. Times are those of devinfo's processes, with the
// delegates that they ran, and of devinfoctl list.
type stats struct {
	sync.Mutex
	begun     time.Time
	times     map[string][]time.Duration // by verb
	kills     map[string]int
	refusals  map[string]int
	warnings  map[string]int
	failures  []error
	mostFiles int
}

func newStats() *stats {
	return &stats{
		begun: time.Now(), times: map[string][]time.Duration{},
		kills: map[string]int{}, refusals: map[string]int{}, warnings: map[string]int{},
	}
}

var verbs = []string{"ADD", "CHECK", "DEL", "GC", "list"}

func (s *stats) took(verb string, d time.Duration) {
	s.Lock()
	defer s.Unlock()
	s.times[verb] = append(s.times[verb], d)
}

func (s *stats) count(in map[string]int, what string) {
	s.Lock()
	defer s.Unlock()
	in[what]++
}

var numbers = regexp.MustCompile(`[0-9a-f]+(:[0-9a-f]+)+\.[0-7]|[0-9]+`)

// warned books the log of a call, by message; numbers and addresses are N.
func (s *stats) warned(log string) {
	for line := range strings.Lines(log) {
		if _, text, ok := strings.Cut(line, "level=WARN msg="); ok {
			message, _, _ := strings.Cut(text, " attachment=")
			s.count(s.warnings, numbers.ReplaceAllString(strings.TrimSpace(message), "N"))
		}
	}
}

// fail books a failure; of no attachment where that is nil.
func (s *stats) fail(verb string, a *attachment, err error) {
	if a != nil {
		err = fmt.Errorf("%s %s/%s/%s: %w", verb, a.kind.network, a.container, a.ifName, err)
	} else {
		err = fmt.Errorf("%s: %w", verb, err)
	}
	s.Lock()
	defer s.Unlock()
	s.failures = append(s.failures, err)
}

// failed is the error that there were failures.
func (s *stats) failed() error {
	s.Lock()
	defer s.Unlock()
	if len(s.failures) == 0 {
		return nil
	}
	return fmt.Errorf("%d failures that no rule explains, such as:\n%w", len(s.failures), errors.Join(s.failures[:min(10, len(s.failures))]...))
}

// progress prints a line every few seconds.
func (s *stats) progress(ctx context.Context, l *ledger) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		there, files := len(l.still(present)), openFiles()
		s.Lock()
		s.mostFiles = max(s.mostFiles, files)
		if n%10 == 0 {
			fmt.Printf("%4.0f s  %4d attached  %5d calls  %4d killed  %3d refused  %d failed  %d open files\n",
				time.Since(s.begun).Seconds(), there, s.calls(), sum(s.kills), sum(s.refusals), len(s.failures), files)
		}
		s.Unlock()
	}
}

func (s *stats) calls() (n int) {
	for _, list := range s.times {
		n += len(list)
	}
	return n + sum(s.kills)
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// print prints what came of the calls, by verb.
func (s *stats) print(out io.Writer) {
	s.Lock()
	defer s.Unlock()
	seconds := time.Since(s.begun).Seconds()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "verb\tcalls\tper second\tkilled\tmedian\t90 %%\t99 %%\tmost\t\n")
	for _, verb := range verbs {
		list := s.times[verb]
		if len(list) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%.1f\t%d", verb, len(list)+s.kills[verb], float64(len(list))/seconds, s.kills[verb])
		for _, q := range []float64{0.5, 0.9, 0.99, 1} {
			fmt.Fprintf(w, "\t%.1f ms", float64(quantile(list, q))/1e6)
		}
		fmt.Fprintln(w, "\t")
	}
	w.Flush()
	fmt.Fprintf(out, "%d calls in %.0f s, %.0f per second; one in %.0f was killed\n",
		s.calls(), seconds, float64(s.calls())/seconds, float64(s.calls())/float64(sum(s.kills)))
	for title, counts := range map[string]map[string]int{"refused": s.refusals, "warned": s.warnings} {
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(out, "%s %d times: %s\n", title, counts[what], what)
		}
	}
}

// quantile sorts the list.
func quantile(list []time.Duration, q float64) time.Duration {
	slices.Sort(list)
	return list[min(len(list)-1, int(q*float64(len(list))))]
}
