package crash_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/link/linktest"
	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/undertest"
)

// An interleaving is a part that is stopped before one of its calls while an actor plays
// another part to its end, or until it waits for the stopped one.
type interleaving struct {
	kind    string
	stopped part
	at      int // from 1
	actor   part
}

func (tr interleaving) String() string {
	return fmt.Sprintf("%s: %s stopped at %d, %s", tr.kind, tr.stopped.name, tr.at, tr.actor.name)
}

func TestInterleaved(t *testing.T) {
	for _, k := range kinds {
		for _, stopped := range stoppable(k) {
			t.Run(k.name+", "+stopped.name, func(t *testing.T) {
				t.Parallel()
				if stopped.name == devinfoctl {
					buildTool(t)
				}
				linktest.Run(t, func(t *testing.T) {
					s := newStage(newWorld(t, os.Getenv(undertest.Key)), k)
					s.tryAll(stopped, actors(), (*stage).judge).report(t)
				})
			})
		}
	}
}

// tryAll runs the interleavings of a part with actors, as many as the environment asks for.
func (s *stage) tryAll(stopped part, actors []part, judge func(*stage, []act) []string) findings {
	s.t.Helper()
	found := findings{}
	var scores []string
	points := s.points(stopped)
	random := rand.New(rand.NewPCG(seed(s.t), 0))
	for _, actor := range actors {
		var list []interleaving
		for at := range points + 1 { // their number may differ from run to run: one more is tried
			list = append(list, interleaving{s.name, stopped, at + 1, actor})
		}
		sum, waited := score{}, 0
		for _, tr := range pick(random, list) {
			d, problems := s.try(tr, judge)
			if d.point.N == 0 && len(problems) == 0 {
				continue // it did not come that far
			}
			if d.waited {
				waited++
			}
			sum = sum.add(problems)
			found.add(problems, fmt.Sprintf("%s='%s': %s", extent, tr, d.point))
		}
		scores = append(scores, sum.of(fmt.Sprintf("%s, which waited %d times,", actor.name, waited))...)
	}
	tell(s.t, s.name+", "+stopped.name+" stopped", scores)
	return found
}

// points are how many calls a part makes at which it can be stopped.
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
		if why := a.failure(); a.broken != nil || why != "" {
			s.t.Fatalf("%s alone: %v %s", p.name, a.broken, why)
		}
		acts = append(acts, a)
	}
	if problems := s.after(acts); len(problems) > 0 {
		s.t.Fatalf("%s alone: %q", p.name, problems)
	}
	return n
}

// watched says whether a call reads or changes what attachments share: anything but the
// programs, their settings, and the captured host.
func watched(c inject.Call) bool {
	for _, not := range []string{"/run/sys/", "/run/netns/", cniDir, nodeFile} {
		if strings.HasPrefix(c.Path, not) {
			return false
		}
	}
	return c.Path == "" || c.Path == "standard output" || strings.HasPrefix(c.Path, "/run/") || strings.HasPrefix(c.Path, "/var/")
}

// try runs an interleaving, and says all that went wrong. The world is as it was.
func (s *stage) try(tr interleaving, judge func(*stage, []act) []string) (duet, []string) {
	s.t.Helper()
	s.before(tr.stopped)
	d := s.play(tr)
	now := take(s.t)
	problems := slices.Concat(now.torn(), s.base.trampled(now), judge(s, d.acts), s.after(d.acts))
	slices.Sort(problems)
	return d, slices.Compact(problems)
}

// before brings the world to where a part begins.
func (s *stage) before(p part) {
	s.t.Helper()
	s.earlier = nil
	if p.has == nil {
		return
	}
	if path := departed.netns; *p.has == departed { // another path of the pod's namespace, until ADD has ended
		s.fine(os.WriteFile(path, nil, 0o444), unix.Mount(podNetns, path, "", unix.MS_BIND, ""))
		defer func() { s.fine(unix.Unmount(path, 0), os.Remove(path)) }()
	}
	a := s.run(s.seat, s.add(*p.has), nil)
	if why := a.failure(); why != "" {
		s.t.Fatalf("ADD before %s: %s", p.name, why)
	}
	s.earlier = []act{a}
}

// after deletes all attachments, as their runtimes do in the end, and says what goes wrong
// or is left.
func (s *stage) after(acts []act) (problems []string) {
	s.t.Helper()
	last := map[string]attachment{ours.container: ours}
	for _, a := range acts {
		if a.verb == "ADD" && (a.exit == 0 || last[a.of.container] == attachment{}) {
			last[a.of.container] = a.of
		}
	}
	for _, a := range last {
		if why := s.call("DEL", a, s.conf(a), nil).failure(); why != "" {
			problems = append(problems, "the last DEL failed: "+why)
		}
	}
	s.fine(letGo(s.device))
	now := take(s.t)
	for _, problem := range slices.Concat(s.base.left(now), s.base.trampled(now)) {
		problems = append(problems, "after the last DEL, "+problem)
	}
	s.base.restore(s.t, now)
	return problems
}

// A duet is what came of an interleaving.
type duet struct {
	point  inject.Call // where the one was stopped; N is 0 if it did not come that far
	waited bool        // the actor, for the stopped one
	acts   []act       // those before included, in the order of their ends
}

// tick is a point in time.
func (s *stage) tick() int { return int(s.clock.Add(1)) }

// play runs an interleaving.
func (s *stage) play(tr interleaving) duet {
	stop := &stop{at: tr.at, reached: make(chan inject.Call, 1), goOn: make(chan struct{})}
	one := make(chan []act, 1)
	go func() { one <- s.runAll(s.first, tr.stopped, stop.decide) }()
	d := duet{acts: s.earlier}
	select {
	case d.point = <-stop.reached:
	case acts := <-one:
		d.acts = append(slices.Clip(d.acts), acts...)
		return d
	}
	w := &waiting{tries: map[string]int{}, begun: make(chan struct{})}
	other := make(chan []act, 1)
	go func() { other <- s.runAll(s.second, tr.actor, w.decide) }()
	var acts []act
	select {
	case acts = <-other:
	case <-w.begun:
		d.waited = true
	}
	close(stop.goOn)
	if d.waited {
		acts = <-other
	}
	d.acts = slices.Concat(d.acts, acts, <-one)
	slices.SortFunc(d.acts, func(a, b act) int { return a.ended - b.ended })
	return d
}

func (s *stage) runAll(where *seat, p part, decide func(inject.Call) inject.Verdict) (acts []act) {
	for _, st := range p.steps(s) {
		acts = append(acts, s.run(where, st, decide))
	}
	return acts
}

// A stop is one watched call, counted those of children included, that is not made until
// goOn is closed.
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

// waiting finds out that a program waits for another: it is about to wait for a lock that
// is taken, or has tried to get one again and again.
type waiting struct {
	tries map[string]int // by path
	begun chan struct{}
	done  bool
}

// patient is how often a program that waits for nobody may try to get a lock.
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
