package crash_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/node"
)

// An interleaving stops a part before one of its calls. While the part is stopped, the actor runs to its end, or
// until it waits for the stopped part.
type interleaving struct {
	kind    string
	stopped part
	at      int // number of the call from 1
	actor   part
}

func (i interleaving) String() string {
	return fmt.Sprintf("%s: %s stopped at %d, %s", i.kind, i.stopped.name, i.at, i.actor.name)
}

func TestInterleavedCallsLoseNoState(t *testing.T) {
	for _, k := range kinds {
		for _, stopped := range stoppable(k) {
			t.Run(k.name+", "+stopped.name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) { newStage(w, k).tryAll(stopped, actors(), (*stage).judge).report(w.t) })
			})
		}
	}
}

// tryAll runs the selected interleavings of a part with actors.
func (s *stage) tryAll(stopped part, actors []part, judge func(*stage, []act) []string) findings {
	s.t.Helper()
	found := findings{}
	points := s.points(stopped)
	random := s.random()
	for _, actor := range actors {
		var list []interleaving
		for at := range points + 1 { // the number may differ between runs, so one more is tried
			list = append(list, interleaving{s.name, stopped, at + 1, actor})
		}
		for _, tr := range pick(random, list) {
			point, problems := s.try(tr, judge) // a part may end before the point
			found.add(problems, fmt.Sprintf("%s='%s': %s", extent, tr, point))
		}
	}
	return found
}

// points returns the number of calls at which a part can be stopped.
func (s *stage) points(p part) (n int) {
	s.t.Helper()
	s.before(p)
	var acts []act
	for _, st := range p.steps(s) {
		a := s.run(s.first, st, func(c inject.Call) inject.Verdict {
			if watched(c) {
				n++
			}
			return inject.Verdict{}
		})
		if why := a.Failure(); a.broken != nil || why != "" {
			s.t.Fatalf("%s alone: %v %s", p.name, a.broken, why)
		}
		acts = append(acts, a)
	}
	if problems := s.after(acts); len(problems) > 0 {
		s.t.Fatalf("%s alone: %q", p.name, problems)
	}
	return n
}

// watched reports whether a call reads or changes state that programs share: a path below /run or /var, except the
// programs, their settings and the captured host. Standard output and calls without a path count too.
func watched(c inject.Call) bool {
	for _, not := range []string{node.Sys + "/", "/run/netns/", node.Bin, node.Settings} {
		if strings.HasPrefix(c.Path, not) {
			return false
		}
	}
	return c.Path == "" || c.Path == "standard output" || strings.HasPrefix(c.Path, "/run/") || strings.HasPrefix(c.Path, "/var/")
}

// try runs an interleaving, and returns the problems. It restores the world.
func (s *stage) try(tr interleaving, judge func(*stage, []act) []string) (point inject.Call, problems []string) {
	s.t.Helper()
	s.before(tr.stopped)
	point, acts := s.play(tr)
	now := view.Take(s.t)
	problems = slices.Concat(torn(now), trampled(s.base, now), judge(s, acts), s.after(acts))
	slices.Sort(problems)
	return point, slices.Compact(problems)
}

// before prepares the state in which a part starts.
func (s *stage) before(p part) {
	s.t.Helper()
	s.earlier = nil
	if p.has == nil {
		return
	}
	// The path of departed is a second mount of the pod's namespace. It is removed after the ADD.
	if path := departed.netns; *p.has == departed {
		s.fine(os.WriteFile(path, nil, 0o444), unix.Mount(podNetns, path, "", unix.MS_BIND, ""))
		defer func() { s.fine(unix.Unmount(path, 0), os.Remove(path)) }()
	}
	a := s.run(s.seat, s.add(*p.has), nil)
	if why := a.Failure(); why != "" {
		s.t.Fatalf("ADD before %s: %s", p.name, why)
	}
	s.earlier = []act{a}
}

// after deletes all attachments, as their runtimes finally do. It returns failures and remaining state.
func (s *stage) after(acts []act) (problems []string) {
	s.t.Helper()
	last := map[string]attachment{ours.container: ours}
	for _, a := range acts {
		if a.verb == "ADD" && (a.Exit == 0 || last[a.of.container] == attachment{}) {
			last[a.of.container] = a.of
		}
	}
	for _, a := range last {
		if why := s.call("DEL", a, s.conf(a), nil).Failure(); why != "" {
			problems = append(problems, "the last DEL failed: "+why)
		}
	}
	s.fine(release(s.device))
	now := view.Take(s.t)
	for _, problem := range slices.Concat(s.base.Left(now), trampled(s.base, now)) {
		problems = append(problems, "after the last DEL, "+problem)
	}
	view.Restore(s.t, s.base, now)
	return problems
}

// tick returns a number that is higher than all earlier ones. It orders the starts and ends of acts.
func (s *stage) tick() int { return int(s.clock.Add(1)) }

// play runs an interleaving. It returns the call at which the part was stopped, whose N is 0 if the part ended before, and all
// acts, including earlier ones, in the order of their ends.
func (s *stage) play(tr interleaving) (point inject.Call, acts []act) {
	stop := &stop{at: tr.at, reached: make(chan inject.Call, 1), goOn: make(chan struct{})}
	one := make(chan []act, 1)
	go func() { one <- s.runAll(s.first, tr.stopped, stop.decide) }()
	select {
	case point = <-stop.reached:
	case acts := <-one:
		return point, slices.Concat(s.earlier, acts)
	}
	w := &waiting{tries: map[string]int{}, begun: make(chan struct{})}
	other := make(chan []act, 1)
	go func() { other <- s.runAll(s.second, tr.actor, w.decide) }()
	select {
	case acts = <-other:
		close(stop.goOn)
	case <-w.begun:
		close(stop.goOn)
		acts = <-other
	}
	acts = slices.Concat(s.earlier, acts, <-one)
	slices.SortFunc(acts, func(a, b act) int { return a.ended - b.ended })
	return point, acts
}

func (s *stage) runAll(where *node.Seat, p part, decide func(inject.Call) inject.Verdict) (acts []act) {
	for _, st := range p.steps(s) {
		acts = append(acts, s.run(where, st, decide))
	}
	return acts
}

// A stop holds the at-th watched call until goOn is closed. Calls of child processes count too.
type stop struct {
	at, n   int
	reached chan inject.Call
	goOn    chan struct{}
}

func (s *stop) decide(c inject.Call) inject.Verdict {
	if !watched(c) {
		return inject.Verdict{}
	}
	if s.n++; s.n != s.at {
		return inject.Verdict{}
	}
	s.reached <- c
	return inject.Verdict{Hold: s.goOn}
}

// waiting detects that a program waits for the stopped one. The program is about to wait for a lock that is taken,
// or has tried several times to get one.
type waiting struct {
	tries map[string]int // number of attempts by path
	begun chan struct{}
	done  bool
}

// patient is the number of attempts to get a lock that a program may make without waiting for another one.
const patient = 3

func (w *waiting) decide(c inject.Call) inject.Verdict {
	if c.Lock.Taken && !w.done {
		w.tries[c.Path]++
		if !c.Lock.Tries || w.tries[c.Path] > patient {
			w.done = true
			close(w.begun)
		}
	}
	return inject.Verdict{}
}
