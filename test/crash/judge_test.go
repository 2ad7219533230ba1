package crash_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/test/node"
)

// due is the expected state of an attachment at the end.
type due int

const (
	gone    due = iota // no state: it was never added, or it was deleted
	refused            // no state, but the journal may say that ADD was refused
	raced              // complete or no state: an ADD and the call that ends it overlapped
	living             // complete
)

// dueOf returns the expected state of a container's attachment. The attachment is alive if no call has ended its
// last successful ADD. It is not alive if its network namespace no longer exists.
func dueOf(acts []act, container string) (what due) {
	for _, a := range acts {
		if a.refused() && a.of.container == container {
			what = max(what, refused)
		}
		if a.verb != "ADD" || a.Exit != 0 || a.of.container != container || a.of == departed {
			continue
		}
		now := living
		for _, r := range acts {
			switch {
			case !r.ends(container) || r.ended < a.began:
			case r.began > a.ended:
				now = gone
			case now == living:
				now = raced
			}
		}
		what = max(what, now)
	}
	return what
}

// judge returns the problems after both parts have ended.
func (s *stage) judge(acts []act) (problems []string) {
	s.t.Helper()
	now := view.Take(s.t)
	expected := maps.Clone(s.base)
	for _, container := range []string{ours.container, neighbour.container} {
		there, missing := s.have(now, container)
		switch what := dueOf(acts, container); {
		case what == living && len(missing) > 0:
			problems = append(problems, "lost by a live attachment: "+strings.Join(missing, ", "))
		case what == living:
			problems = append(problems, s.checked(acts, container)...)
		case what == raced && len(there) > 0 && len(missing) > 0:
			problems = append(problems, "half deleted while it was added, there: "+strings.Join(there, ", ")+"; not there: "+strings.Join(missing, ", "))
		case what == refused:
			maps.Copy(expected, refusal(now, container))
			continue
		case what == gone && !owed(acts):
			continue // left reports state that still exists
		}
		maps.Copy(expected, s.owns[container])
	}
	if slices.ContainsFunc(acts, func(a act) bool { return a.verb == claimant && a.Exit == 0 }) {
		if is, err := held(s.device); err != nil || !is {
			problems = append(problems, "lost: the claim's device")
		}
		return append(problems, s.refusals(acts)...) // the claim's state is not checked here
	}
	return slices.Concat(problems, expected.Left(now), s.refusals(acts))
}

// owed reports whether a call failed that should have ended attachments. The runtime repeats such a call.
func owed(acts []act) bool {
	return slices.ContainsFunc(acts, func(a act) bool {
		return a.Exit != 0 && (a.verb == "DEL" || a.verb == "GC" || a.verb == devinfoctl)
	})
}

// refused reports whether the act is an ADD that failed because another holder has the device.
func (a act) refused() bool { return a.verb == "ADD" && a.Printed().Code == failure.Held }

// refusal returns the entry of the journal that says only that the container's ADD was refused; empty = there is none.
func refusal(now node.Snapshot, container string) node.Snapshot {
	path := journal.Key{Network: "net", ContainerID: container, IfName: ours.ifName}.Path(stateDir)
	var e journal.Entry
	if json.Unmarshal([]byte(now[path].Text), &e) != nil || e.Refused == "" ||
		e.File != "" || e.CDI != (journal.CDI{}) || e.SocketDir != "" || e.Leases != nil || e.Delegates != nil {
		return nil
	}
	return node.Snapshot{path: now[path]}
}

// have compares an attachment's state with its expected state. It ignores directories and the content of the
// journal's files.
func (s *stage) have(now node.Snapshot, container string) (there, missing []string) {
	owns := s.owns[container]
	for _, path := range slices.Sorted(maps.Keys(owns)) {
		was := owns[path]
		if was.Mode.IsDir() {
			continue
		}
		is, ok := now[path]
		state := strings.HasPrefix(path, stateDir) && was.Mode&fs.ModeSymlink == 0
		switch {
		case !ok:
			missing = append(missing, path)
		case is != was && !state:
			missing = append(missing, path+" as it was")
		default:
			there = append(there, path)
		}
	}
	return there, missing
}

// checked runs CHECK for a live attachment. It also checks that the journal entry has the network namespace of a
// successful ADD.
func (s *stage) checked(acts []act, container string) (problems []string) {
	s.t.Helper()
	adds := slices.DeleteFunc(slices.Clone(acts), func(a act) bool {
		return a.verb != "ADD" || a.Exit != 0 || a.of.container != container || a.of == departed
	})
	last := adds[len(adds)-1]
	if why := s.run(s.seat, s.check(last), nil).Failure(); why != "" {
		problems = append(problems, "CHECK of a live attachment fails: "+why)
	}
	j, err := node.Journal(stateDir)
	s.fine(err)
	e, err := j.Get(journal.Key{Network: "net", ContainerID: container, IfName: last.of.ifName})
	if err != nil {
		problems = append(problems, "the entry of a live attachment: "+err.Error())
		// A replacement plugin has no entry.
	} else if e != nil && !slices.ContainsFunc(adds, func(a act) bool { return a.of.netns == e.Netns }) {
		problems = append(problems, "the entry of a live attachment has another namespace: "+e.Netns)
	}
	return problems
}

// refusals returns the failures of acts that must not fail.
func (s *stage) refusals(acts []act) (problems []string) {
	for _, a := range acts {
		why := a.Failure()
		switch {
		case a.broken != nil:
			problems = append(problems, a.verb+": "+a.broken.Error())
		case strings.Contains(a.Stderr, "goroutine "):
			problems = append(problems, a.verb+" panicked: "+a.Stderr)
		case a.Exit == 0 || a.verb == claimant || a.mayFail(acts):
		case a.verb == devinfoctl:
			problems = append(problems, a.verb+" failed: "+strings.TrimSpace(a.Stderr))
		default:
			problems = append(problems, a.verb+" failed: "+why)
		}
		if plugin := a.verb != claimant && a.verb != devinfoctl; plugin && a.broken == nil && a.Exit != 0 && strings.HasPrefix(why, "exit code ") {
			problems = append(problems, a.verb+" failed and printed no error: "+why)
		}
	}
	return problems
}

// tryAgain is CNI's error code for a temporary error.
const tryAgain = 11

// mayFail reports whether an act may fail. An ADD may be refused, and a CHECK may find an attachment that was
// changed. The runtime may have to repeat a DEL, or a GC that overlapped an ADD.
func (a act) mayFail(acts []act) bool {
	added := slices.ContainsFunc(acts, func(b act) bool {
		return b.verb == "ADD" && b.ended > a.began && b.of.container == ours.container
	})
	ended := slices.ContainsFunc(acts, func(b act) bool { return b.ends(a.of.container) })
	switch a.verb {
	case "ADD":
		return true
	case "CHECK":
		return added || ended
	case "DEL":
		return a.Printed().Code == tryAgain
	case "GC":
		return added && a.Printed().Code == tryAgain
	}
	return added
}
