package crash_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"devinfo-cni.io/pkg/core/failure"
)

// An update replaces the plugin while attachments exist, and an administrator may take it back. So each build must CHECK and
// end what the other has added, must refuse a device that the other's attachment holds, and must end an ADD that the other has
// refused.
func TestFormerBuildsAndThisOneReadEachOthersState(t *testing.T) {
	for _, commit := range []string{"4f593da9", "cd67cdc8"} {
		former := buildFormer(t, commit)
		inEach(t, commit+"/", func(w *world, s scenario, found findings) {
			w.settle(s)
			for _, then := range []string{del, gc, again} {
				found.add(w.changed(s, w.plugin, former, then), "taken back, "+then)
				found.add(w.changed(s, former, w.plugin, then), "updated, "+then)
			}
		})
	}
}

// buildFormer builds the plugin of a commit, and returns its path, which is in the environment of the processes that subtests
// start. It skips the test if the repository has no such commit, as in a release or in a shallow clone.
func buildFormer(t *testing.T, commit string) (binary string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it builds a program")
	}
	key := "DEVINFO_CRASH_" + commit
	if binary = os.Getenv(key); binary != "" {
		return binary
	}
	binary = t.TempDir() + "/devinfo"
	t.Setenv(key, binary)
	if out, err := exec.Command("git", "cat-file", "-e", commit).CombinedOutput(); err != nil {
		t.Skipf("the history of the repository has no commit %s (git fetch --unshallow): %v: %s", commit, err, out)
	}
	const build = `git -C ../.. archive "$2" cmd/devinfo pkg plugins devinfo go.mod go.sum | tar -x -C "$0" && cd "$0" && CGO_ENABLED=0 go build -o "$1" ./cmd/devinfo`
	if out, err := exec.Command("sh", "-c", build, t.TempDir(), binary, commit).CombinedOutput(); err != nil {
		t.Fatalf("build commit %s: %v\n%s", commit, err, out)
	}
	return binary
}

// changed adds the attachment by one build, and makes all later calls by another. It returns the problems.
func (w *world) changed(s scenario, from, to, then string) (problems []string) {
	w.t.Helper()
	defer func(plugin string) { w.plugin = plugin }(w.plugin)
	w.plugin = from
	w.before(trial{scenario: s, verb: "ADD"})
	o := w.call("ADD", ours, s.conf, nil)
	if why := o.Failure(); why != "" {
		w.t.Fatalf("ADD: %s", why)
	}
	w.plugin = to
	problems = w.added(s, o.Stdout, view.Take(w.t))
	if s.delegating() {
		other := attachment{"feed00feed00feed00feed00", "net9", otherNetns, otherUID}
		if e := w.call("ADD", other, other.marker("third"), nil).Printed(); e.Code != failure.Held {
			problems = append(problems, fmt.Sprintf("another pod gets the device: code %d, %s", e.Code, e.Msg))
		}
		w.plugin = from
		if why := w.call("DEL", other, other.marker("third"), nil).Failure(); why != "" {
			problems = append(problems, "DEL of the refused ADD: "+why)
		}
		w.plugin = to
	}
	tr := trial{scenario: s, verb: "ADD", then: then}
	problems = append(problems, w.afterwards(tr)...)
	return append(problems, w.remains(tr)...)
}
