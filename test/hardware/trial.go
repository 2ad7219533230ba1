package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"devinfo-cni.io/pkg/dra/devices/restore"
)

type outcome string

const (
	passedOutcome        outcome = "passed"
	failedOutcome        outcome = "failed"
	notApplicableOutcome outcome = "not applicable"
)

type result struct {
	Function string  `json:"function"` // or several
	Check    string  `json:"check"`
	Outcome  outcome `json:"outcome"`
	Why      string  `json:"why,omitempty"`
	Facts    string  `json:"facts,omitempty"` // of the kernel, if the check failed
	Time     string  `json:"time,omitempty"`  // of the ADD or the reset
	Took     string  `json:"took,omitempty"`
}

// notApplicable is why a check does not apply to a function.
type notApplicable string

func (n notApplicable) Error() string { return string(n) }

// stepLimit is the time limit of a check, without restoring.
const stepLimit = 2 * time.Minute

// try runs all checks on all targets. Whatever happens, the functions are restored at the end, or the record remains.
func (n *node) try(ctx context.Context, targets []*target, only *regexp.Regexp, out io.Writer) (results []result, err error) {
	if err := n.begin(targets); err != nil {
		return nil, err
	}
	say := func(t result) {
		results = append(results, t)
		line := fmt.Sprintf("  %-50s  %s", t.Check, t.Outcome)
		if t.Why != "" {
			line += ": " + t.Why
		}
		fmt.Fprintln(out, line)
	}
	broken := func() bool { return slices.ContainsFunc(targets, func(t *target) bool { return t.broken || t.hangs }) }
	exchanges := only.MatchString(framesBefore)
	var frames map[string]bool
	if exchanges {
		frames = n.exchange(ctx, targets, framesBefore, say, nil)
	}
	for _, t := range targets {
		fmt.Fprintf(out, "%s  %s\n", t.PCI, t.describe())
		for _, c := range checks {
			if ctx.Err() == nil && !broken() && !t.taken && only.MatchString(c.name) {
				say(n.one(ctx, c, t))
			}
		}
	}
	if exchanges && !broken() {
		n.exchange(ctx, targets, "frames between two VFs, after", say, frames)
	}
	for _, t := range targets {
		n.finally(context.WithoutCancel(ctx), t, say)
	}
	if broken() {
		fmt.Fprintf(out, "A function is not as before, or a check has not ended. Run devinfo-try --restore; the record is %s.\n", n.recordFile())
		return results, nil
	}
	return results, n.end()
}

// finally compares a function with before. After its last step it was restored, so that it is left alone if somebody has
// begun to use it since.
func (n *node) finally(ctx context.Context, t *target, say func(result)) {
	if t.taken {
		return
	}
	r := result{Function: t.PCI, Check: "as before, at the end", Outcome: failedOutcome}
	if !t.broken {
		if err := n.mayTry(ctx, t); err != nil {
			r.Outcome, r.Why = notApplicableOutcome, err.Error()
			say(r)
			return
		}
	}
	if left := n.asBefore(ctx, t); left != nil {
		r.Why, r.Facts = strings.Join(left, "; "), facts(t)
		say(r)
	}
}

// one runs a check on a function, or on several together, and brings them back.
func (n *node) one(ctx context.Context, c check, targets ...*target) (r result) {
	began := time.Now()
	var add time.Duration
	var names []string
	for _, t := range targets {
		names = append(names, t.PCI)
		r.Why = cmp.Or(r.Why, t.lacks(c.needs))
	}
	r.Function, r.Check, r.Outcome = strings.Join(names, " "), c.name, passedOutcome
	if r.Why != "" {
		r.Outcome = notApplicableOutcome
		return r
	}
	if err := n.mayTry(ctx, targets...); err != nil {
		r.Outcome, r.Why = failedOutcome, err.Error()
		return r
	}
	err := n.limited(ctx, c, targets[0], &add)
	if none, is := errors.AsType[notApplicable](err); is {
		r.Outcome, r.Why, err = notApplicableOutcome, string(none), nil
	} else if c.moves && err == nil {
		err = n.cameBack(n.before(targets[0]))
	}
	for _, t := range targets {
		if left := n.asBefore(ctx, t); left != nil {
			err = errors.Join(err, fmt.Errorf("%s is not as before: %s", t.PCI, strings.Join(left, "; ")))
		}
	}
	if err != nil {
		r.Outcome, r.Why, r.Facts = failedOutcome, strings.ReplaceAll(err.Error(), "\n", "; "), facts(targets...)
	}
	if r.Took = time.Since(began).Round(time.Millisecond).String(); add > 0 {
		r.Time = add.Round(time.Millisecond).String()
	}
	return r
}

// limited runs a check until its time limit. A write to /sys may block in the kernel, so the check is then left behind.
func (n *node) limited(ctx context.Context, c check, t *target, add *time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.run(ctx, n, t, add) }()
	select {
	case err := <-done:
		return err
	case <-time.After(stepLimit + 10*time.Second):
		t.hangs = true
		return fmt.Errorf("it has not ended after %s", stepLimit)
	}
}

// mayTry asks again whether somebody uses functions, and notes that they are not as before from now on.
func (n *node) mayTry(ctx context.Context, list ...*target) error {
	trying := n.run.Trying
	for _, t := range list {
		if err := n.stillFree(ctx, t); err != nil {
			t.taken = true
			return err
		}
		trying = append(trying, t.PCI)
	}
	return n.note(trying)
}

func (n *node) stillFree(ctx context.Context, t *target) error {
	now, err := n.find(ctx, t.PCI)
	switch {
	case err != nil:
		return err
	case now == nil:
		return fmt.Errorf("%s: the node has lost it", t.PCI)
	case now.why != "":
		return fmt.Errorf("%s: somebody uses it now, so it is left as it is: %s", t.PCI, now.why)
	}
	return nil
}

// cameBack waits until the function is as before without help, except that a moved interface is down, and that the kernel
// keeps its name from the pod if the pod's namespace was killed.
func (n *node) cameBack(f function) error {
	removePods()
	var different []string
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		now, err := n.state(f.Ref)
		want := f.State
		now.Up, want.Up = false, false
		if now.IfName == ifName {
			now.IfName = want.IfName
		}
		different = want.unlike(now)
		if err == nil && different == nil {
			break
		}
		if time.Now().After(deadline) {
			return errors.Join(err, fmt.Errorf("it did not come back as it was: %s", strings.Join(different, "; ")))
		}
	}
	now, err := n.custody.Look(f.Ref)
	if errors.Is(err, restore.ErrNotOnNode) { // it has its name from the pod
		return nil
	}
	if err == nil && f.Before.VF != nil && now.VF != nil {
		if left := f.Before.VF.Unlike(*now.VF); left != nil {
			err = fmt.Errorf("it did not come back as it was: %s", strings.Join(left, ", "))
		}
	}
	return err
}

// facts are what the kernel says about functions, for a failed check.
func facts(targets ...*target) string {
	var list []string
	for _, t := range targets {
		dir := "/sys/bus/pci/devices/" + t.PCI
		driver, _ := os.Readlink(dir + "/driver")
		list = append(list, fmt.Sprintf("driver %s; /sys has %s", filepath.Base(driver), strings.Join(below(dir+"/*"), " ")))
	}
	return strings.Join(list, "; ")
}
