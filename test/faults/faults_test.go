// Package faults_test runs each program on a node, and lets each of its reads fail once: every open, stat, readlink,
// readdir, read, and every call on a netlink or other socket. The program is an unchanged executable, whose system
// calls package inject stops.
//
// A read that fails is not an empty answer. After the fault the program must have said so, in its exit code, its output
// or its log, unless its answer is the same as without the fault. Whatever it says without an error, it says
// without the fault too. What others hold is as before, and the same command without the fault then gives the right
// answer. testdata/silences.txt has the exceptions.
//
// DEVINFO_FAULTS=all tries every error at every read (the nightly run), a text tries the trials with that text in their
// names, as failures print them. By default a few are tried, which are the same each time.
package faults_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

const extent = "DEVINFO_FAULTS"

// always are parts of the names of trials that have found a defect, or guard against a grave one. They are always tried.
var always = []string{
	"another's file: getdents64 /run/state/leases/file/default-net-decaf000decaf000decaf000_net5 #1: EIO",
	"another's file: openat /run/state/attachments/net@c0ffee00c0ffee00c0ffee00@net1 #1: EIO",
	"devinfoctl list: openat /run/info/default-net-decaf000decaf000decaf000_net1 #1: EIO",
	"devinfoctl list -o json: readlinkat /run/sys/bus/pci/devices/0000:01:10.2 #2: EIO",
	"devinfoctl inspect net1 --netns /run/netns/other: openat /run/netns/other #2: EIO",
}

// few is the number of trials of each scenario by default.
const few = 6

func TestMain(m *testing.M) {
	if as, ok := helpers[filepath.Base(os.Args[0])]; ok {
		if err := as(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	undertest.Temp(m)
}

func TestFailedReadIsNotAnEmptyAnswer(t *testing.T) {
	program(t, "devinfo")
	program(t, "devinfoctl")
	exempt := readSilences(t)
	t.Run("scenarios", func(t *testing.T) {
		for _, s := range scenarios {
			if of, _, found := strings.Cut(os.Getenv(extent), ":"); found && of != s.name {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				linktest.RunAlone(t, func(t *testing.T) { newWorld(t).tryAll(s, exempt) })
			})
		}
	})
	exempt.unused(t)
}

func (w *world) tryAll(s scenario, exempt *silences) {
	found, tried := map[string][]string{}, 0
	all := slices.DeleteFunc(w.trials(s), exempt.has)
	for _, tr := range pick(all) {
		tried++
		for _, problem := range w.try(tr) {
			found[problem] = append(found[problem], tr.String())
		}
	}
	for _, problem := range slices.Sorted(maps.Keys(found)) {
		where := found[problem]
		w.t.Errorf("%s\n\tafter %d faults:\n\t\t%s", problem, len(where), strings.Join(where[:min(len(where), 12)], "\n\t\t"))
	}
	w.t.Logf("%s: %d trials of %d", s.name, tried, len(all))
}

// A trial is a scenario with one fault.
type trial struct {
	scenario
	call  inject.Call
	nth   int // number of the call among those with the same name and path
	fault fault
	clean answer // without the fault
}

func (tr trial) String() string {
	return fmt.Sprintf("%s: %s %s #%d: %s", tr.name, tr.call.Name, tr.call.Path, tr.nth, tr.fault.name)
}

// A fault is an error of a read.
type fault struct {
	name   string
	errno  unix.Errno // 0 = an empty answer
	absent bool       // it means that the thing does not exist, so the program may go on without it
}

func (f fault) verdict() inject.Verdict { return inject.Verdict{Errno: f.errno, Empty: f.errno == 0} }

func errnos(list ...unix.Errno) (faults []fault) {
	for _, errno := range list {
		absent := slices.Contains([]unix.Errno{unix.ENOENT, unix.ENODEV, unix.ECONNREFUSED}, errno)
		faults = append(faults, fault{unix.ErrnoName(errno), errno, absent})
	}
	return faults
}

// faultsOf are the errors that a call may have, the most common one first.
var faultsOf = map[string][]fault{
	"openat":     errnos(unix.EIO, unix.EACCES, unix.EMFILE, unix.ESTALE, unix.ENOENT),
	"newfstatat": errnos(unix.EIO, unix.EACCES, unix.ESTALE, unix.ENOENT),
	"statx":      errnos(unix.EIO, unix.EACCES, unix.ESTALE, unix.ENOENT),
	"faccessat2": errnos(unix.EIO, unix.EACCES, unix.ENOENT),
	"readlinkat": errnos(unix.EIO, unix.EACCES, unix.ESTALE, unix.ENOENT),
	"getdents64": errnos(unix.EIO, unix.ESTALE, unix.ENOENT),
	"read":       append(errnos(unix.EIO, unix.ESTALE, unix.ENODEV), fault{name: "cut off"}),
	"pread64":    errnos(unix.EIO, unix.ESTALE, unix.ENODEV),
	"connect":    errnos(unix.ETIMEDOUT, unix.EACCES, unix.ECONNREFUSED),
	"sendto":     errnos(unix.ENOBUFS),
	"sendmsg":    errnos(unix.ENOBUFS),
	"recvfrom":   errnos(unix.ENOBUFS, unix.EIO),
	"recvmsg":    errnos(unix.ENOBUFS, unix.EIO),
	"setns":      errnos(unix.EPERM, unix.ENOMEM),
}

// numbers is a part of a path that differs between similar things.
var numbers = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f]*`)

// similar is the number of reads that are tried of those that differ only in the numbers in their paths. The second and
// later ones have only the most common error.
const similar = 2

// trials returns the trials of a scenario.
func (w *world) trials(s scenario) (list []trial) {
	w.t.Helper()
	clean := w.clean(s)
	nth, kinds := map[string]int{}, map[string]int{}
	for _, c := range clean.calls {
		name := c.Name + " " + c.Path
		nth[name]++
		kind := numbers.ReplaceAllString(name, "N")
		kinds[kind]++
		for n, f := range faultsOf[c.Name] {
			if tr := (trial{s, c, nth[name], f, clean}); kinds[kind] == 1 || n == 0 && kinds[kind] <= similar || tr.always() {
				list = append(list, tr)
			}
		}
	}
	return list
}

// pick returns the trials that the environment variable selects.
func pick(list []trial) []trial {
	switch want := os.Getenv(extent); want {
	case "all":
		return list
	case "":
		kept := slices.DeleteFunc(slices.Clone(list), func(tr trial) bool { return !tr.always() })
		list = slices.DeleteFunc(list, func(tr trial) bool { return tr.fault.absent })
		slices.SortStableFunc(list, func(a, b trial) int { return int(a.hash()) - int(b.hash()) })
		return append(kept, list[:min(few, len(list))]...)
	default:
		return slices.DeleteFunc(list, func(tr trial) bool { return !strings.Contains(tr.String(), want) })
	}
}

func (tr trial) always() bool {
	return slices.ContainsFunc(always, func(part string) bool { return strings.Contains(tr.String(), part) })
}

func (tr trial) hash() uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(tr.String())) // never fails
	return h.Sum32() >> 1
}

// try runs a trial, and returns the problems.
func (w *world) try(tr trial) (problems []string) {
	w.t.Helper()
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	before, nth := w.ready(tr.scenario), 0
	got := w.run(tr.scenario, func(c inject.Call) inject.Verdict {
		if !c.Child && c.Name == tr.call.Name && c.Path == tr.call.Path {
			if nth++; nth == tr.nth {
				return tr.fault.verdict()
			}
		}
		return inject.Verdict{}
	})
	now := view.Take(w.t)
	defer func() { view.Restore(w.t, w.base, now) }()
	if nth < tr.nth {
		return nil // the number of its calls differs from run to run
	}
	if strings.Contains(got.Stderr, "goroutine ") {
		problem("it panicked: %s", got.Stderr)
	}
	if tr.fault.absent {
		got.notice = true // as if the thing did not exist
	}
	if got.Exit < 0 {
		problem("it was killed or hangs")
	}
	same := got.Exit == tr.clean.Exit && got.Stdout == tr.clean.Stdout
	if !same && !got.says(tr) {
		problem("silent: exit code %d instead of %d, and another answer:\n%s\n%s", got.Exit, tr.clean.Exit, difference(tr.clean.Stdout, got.Stdout), got.Stderr)
	}
	for _, p := range changed(before, now, tr.clean.after) {
		problem("%s", p)
	}
	if same && !tr.fault.absent && !got.says(tr) {
		for _, p := range lacking(now, tr.clean.after) {
			problem("silent: %s", p)
		}
	}
	if !tr.settles {
		for _, p := range before.Left(now) {
			problem("%s", p)
		}
		return problems
	}
	if again := w.run(tr.scenario, nil); again.Exit != 0 {
		problem("the next run without a fault fails: %s%s", again.Stdout, again.Stderr)
	}
	now = view.Take(w.t)
	rest := lacking(now, tr.clean.after)
	if !tr.fault.absent { // otherwise it may have used other directories, or not have looked at what is there
		rest = append(rest, tr.clean.after.Left(now)...)
	}
	for _, p := range rest {
		problem("after the next run: %s", p)
	}
	return problems
}

// difference returns the lines that only one of the answers has.
func difference(want, got string) string {
	var lines []string
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for sign, pair := range map[string][2][]string{"-": {a, b}, "+": {b, a}} {
		for _, line := range pair[0] {
			if !slices.Contains(pair[1], line) {
				lines = append(lines, sign+strings.TrimSpace(line))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines[:min(len(lines), 8)], "\n")
}

// silences are patterns of trials that need not be right, with their reasons.
type silences struct {
	patterns []*regexp.Regexp
	used     string // directory with an entry for each pattern that matches a trial, for the processes of all scenarios
	all      bool   // this process runs all scenarios
}

const usedKey = "DEVINFO_FAULTS_USED"

// readSilences reads testdata/silences.txt: a pattern a line, each below a comment with its reason.
func readSilences(t *testing.T) *silences {
	t.Helper()
	s := silences{used: os.Getenv(usedKey)}
	if s.used == "" {
		s.used, s.all = t.TempDir(), os.Getenv(extent) == "all"
		t.Setenv(usedKey, s.used)
	}
	for line := range strings.Lines(difftest.Read(t, "testdata/silences.txt")) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			s.patterns = append(s.patterns, regexp.MustCompile(line))
		}
	}
	return &s
}

func (s *silences) has(tr trial) bool {
	n := slices.IndexFunc(s.patterns, func(p *regexp.Regexp) bool { return p.MatchString(tr.String()) })
	if n >= 0 {
		_ = os.Mkdir(filepath.Join(s.used, fmt.Sprint(n)), 0o700) // exists if it is used twice
	}
	return n >= 0
}

// unused fails the test for each pattern that matches nothing, after every trial.
func (s *silences) unused(t *testing.T) {
	t.Helper()
	for n, p := range s.patterns {
		if _, err := os.Stat(filepath.Join(s.used, fmt.Sprint(n))); err != nil && s.all {
			t.Errorf("testdata/silences.txt: nothing matches %s", p)
		}
	}
}
