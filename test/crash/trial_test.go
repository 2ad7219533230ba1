package crash_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/node"
)

// A fault is an injected event at a point.
type fault struct {
	name    string
	verdict inject.Verdict
	on      bool // also at all later points, like a full disk
	orphan  bool // the points are calls of the delegates; the plugin is killed, and the delegates continue
}

const orphaned = "SIGKILL while a delegate runs"

func faults() []fault {
	list := []fault{{name: "SIGKILL", verdict: inject.Verdict{Kill: true}}, {name: orphaned, verdict: inject.Verdict{Kill: true}, orphan: true}}
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EROFS} {
		v := inject.Verdict{Errno: errno}
		list = append(list, fault{name: unix.ErrnoName(errno), verdict: v}, fault{name: unix.ErrnoName(errno) + " from there on", verdict: v, on: true})
	}
	return list
}

// Calls of the runtime after a fault.
const (
	del       = "DEL"
	gc        = "GC"
	again     = "ADD and DEL"
	delFormer = "DEL of the former ADD" // with the configuration of the earlier ADD, which the runtime still has
)

// A trial is one verb with a fault at one point, and the runtime's next call.
type trial struct {
	scenario
	verb  string
	fault fault
	point int // number of the call from 1
	then  string
}

func (tr trial) String() string {
	return fmt.Sprintf("%s, %s at %d, %s", tr.verb, tr.fault.name, tr.point, tr.then)
}

// before brings the world to the state before the verb.
func (w *world) before(tr trial) {
	w.t.Helper()
	if tr.former != nil {
		w.must("ADD", ours, tr.former)
	}
	w.prepare(tr.scenario)
	if tr.verb != "ADD" {
		w.must("ADD", ours, tr.conf)
	}
}

// prepare writes the early file, as the runtime does before each ADD.
func (w *world) prepare(s scenario) {
	w.t.Helper()
	if s.early == "" {
		return
	}
	w.fine(os.WriteFile(ours.path("net"), []byte(s.early), 0o644))
}

// try runs the trial, and returns the problems. The point is zero if the verb ended before it. It restores the world.
func (w *world) try(tr trial) (point inject.Call, problems []string) {
	w.t.Helper()
	w.before(tr)
	release := make(chan struct{})
	if tr.fault.orphan {
		tr.fault.verdict.Hold = release
	}
	o := w.call(tr.verb, ours, tr.conf, func(c inject.Call) inject.Verdict {
		if c.Child != tr.fault.orphan || c.N != tr.point && (!tr.fault.on || c.N < tr.point) {
			return inject.Verdict{}
		}
		if point.N == 0 {
			point = c
		}
		return tr.fault.verdict
	})
	now := view.Take(w.t)
	problems = append(torn(now), trampled(w.base, now)...)
	killed := point.N > 0 && tr.fault.verdict.Kill
	if !killed {
		problems = append(problems, w.kept(tr, o, point, now)...)
	}
	patience := time.AfterFunc(holding, func() { close(release) })
	if killed || o.Exit != 0 || tr.verb == "ADD" {
		then := w.afterwards(tr)
		if tr.fault.orphan && tr.then == gc { // GC waits only a second for the delegate
			then = slices.DeleteFunc(then, func(problem string) bool { return strings.Contains(problem, stillLocked) })
		}
		problems = append(problems, then...)
	}
	if patience.Stop() {
		close(release)
	}
	if tr.fault.orphan {
		w.reap()
		if tr.then == gc { // the next GC finds what the delegate has left
			problems = append(problems, w.afterwards(tr)...)
		}
	}
	problems = append(problems, w.remains(tr)...)
	slices.Sort(problems)
	return point, slices.Compact(problems)
}

// remains returns the differences from the base, and restores the base.
func (w *world) remains(tr trial) (problems []string) {
	w.t.Helper()
	now := view.Take(w.t)
	if file := ours.path("net"); tr.then == gc && tr.early != "" && now[file].Text == tr.early {
		w.fine(view.Remove(file)) // the runtime's own file; an ADD that failed early has not recorded it for GC
		now = view.Take(w.t)
	}
	problems = slices.Concat(w.base.Left(now), trampled(w.base, now))
	view.Restore(w.t, w.base, now)
	return problems
}

// stillLocked is in the error of a call that found an earlier one running.
const stillLocked = ": still locked "

// holding is the time that an orphaned delegate is held, unless the runtime's calls end before. These calls must wait
// for the delegate.
const holding = time.Second

// kept returns the promises of the result that do not hold.
func (w *world) kept(tr trial, o node.Outcome, point inject.Call, now node.Snapshot) (problems []string) {
	why := o.Failure()
	switch {
	case o.Exit != 0 && point.N == 0:
		return []string{tr.verb + " failed without a fault: " + why}
	case strings.Contains(o.Stderr, "goroutine "):
		return []string{tr.verb + " panicked: " + o.Stderr}
	case o.Exit != 0 && strings.HasPrefix(why, "exit code ") && point.Path != "standard output" && !tr.fault.on:
		return []string{tr.verb + " failed and printed no error: " + why}
	case o.Exit != 0:
		return nil
	case tr.verb != "ADD":
		for _, problem := range w.base.Left(now) {
			problems = append(problems, tr.verb+" succeeded, but "+problem)
		}
		return problems
	}
	return w.added(tr.scenario, o.Stdout, now)
}

// added returns the effects that a successful ADD lacks.
func (w *world) added(s scenario, result string, now node.Snapshot) (problems []string) {
	for _, path := range slices.Sorted(maps.Keys(w.promised)) {
		if is, there := now[path]; !there {
			problems = append(problems, "ADD succeeded, but did not write "+path)
		} else if is != w.promised[path] {
			problems = append(problems, "ADD succeeded, but left another content in "+path)
		}
	}
	if !json.Valid([]byte(result)) {
		return append(problems, "ADD succeeded, but printed no result: "+result)
	}
	if why := w.call("CHECK", ours, s.conf.with(conf{"prevResult": json.RawMessage(result)}), nil).Failure(); why != "" {
		problems = append(problems, "ADD succeeded, but CHECK fails: "+why)
	}
	return problems
}

// afterwards runs the runtime's calls after the fault. All of them must succeed.
func (w *world) afterwards(tr trial) (problems []string) {
	w.t.Helper()
	try := func(verb string, c conf) (why string) {
		if why = w.call(verb, ours, c, nil).Failure(); why != "" {
			problems = append(problems, verb+" afterwards failed: "+why)
		}
		now := view.Take(w.t)
		problems = append(problems, slices.Concat(torn(now), trampled(w.base, now))...)
		return why
	}
	switch tr.then {
	case del:
		try("DEL", tr.conf)
	case gc:
		try("GC", tr.conf)
	case delFormer:
		try("DEL", tr.former)
	case again:
		w.prepare(tr.scenario)
		o := w.call("ADD", ours, tr.conf, nil)
		if why := o.Failure(); strings.Contains(why, "DEL first") && tr.delegating() { // the earlier ADD was complete
			try("DEL", tr.conf)
			o = w.call("ADD", ours, tr.conf, nil)
		}
		if why := o.Failure(); why != "" {
			problems = append(problems, "ADD afterwards failed: "+why)
		} else {
			problems = append(problems, w.added(tr.scenario, o.Stdout, view.Take(w.t))...)
		}
		try("DEL", tr.conf)
	}
	return problems
}
