package crash_test

import (
	"slices"

	"devinfo-cni.io/test/crash/inject"
)

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
	stop := newStop(tr.at)
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

func newStop(at int) *stop {
	return &stop{at: at, reached: make(chan inject.Call, 1), goOn: make(chan struct{})}
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
