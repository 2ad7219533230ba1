package journal_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/private/privatetest"
)

// wanted is an entry that wants one thing, of the kind that the number says.
func wanted(k journal.Key, n int) *journal.Entry {
	name := fmt.Sprint("w", n)
	return []*journal.Entry{{Key: k, File: name}, {Key: k, CDI: journal.CDI{File: name}}, {Key: k, SocketDir: "/" + name, Pod: k.ContainerID}}[n%3]
}

const rounds = 30

// Some claims are stale: these are removed first, by one of those who want them.
func TestOfManyProcessesThatWantOneThingExactlyOneGetsIt(t *testing.T) {
	if dir := os.Getenv(dirKey); dir != "" {
		wantAll(t, journal.Open(dir, boot))
		return
	}
	j, dir := open(t)
	for n := range rounds {
		if n%2 == 0 {
			putEntry(t, journal.Open(dir, "an older boot"), wanted(key(fmt.Sprint("old", n), "net1"), n))
		}
	}
	won := compete(t, dir)
	for n := range rounds {
		if len(won[n]) != 1 {
			t.Errorf("round %d: won by %q", n, won[n])
			continue
		}
		k := key(won[n][0], "net1")
		got := claims(t, j, k)
		if e := former(t, j, k); e == nil || len(slices.Concat(got[:]...)) != 1 {
			t.Errorf("round %d: the winner has entry %v, and has claimed %q", n, e, got)
		} else {
			must(t, j.Forget(e))
		}
	}
	keys, err := j.All()
	must(t, err)
	for _, k := range keys {
		if !strings.HasPrefix(k.ContainerID, "old") {
			t.Errorf("the loser %s has an entry", k)
		}
		must(t, j.Forget(former(t, j, k)))
	}
	expectFiles(t, dir)
}

const dirKey, idKey = "JOURNAL_TEST_DIR", "JOURNAL_TEST_ID"

// wantAll is one of the processes. It says which rounds it has won.
func wantAll(t *testing.T, j *journal.Journal) {
	_, err := io.ReadAll(os.Stdin) // all start at once
	must(t, err)
	for n := range rounds {
		id := fmt.Sprint(os.Getenv(idKey), "-", n)
		_, err := j.Put(wanted(key(id, "net1"), n), nil)
		var owned *journal.OwnedError
		switch {
		case err == nil:
			fmt.Println("won", n, id)
		case !errors.As(err, &owned):
			t.Error(err)
		}
	}
}

// compete runs the test in several processes, and gives the container IDs that have won
// each round.
func compete(t *testing.T, dir string) (won [rounds][]string) {
	t.Helper()
	start, starter, err := os.Pipe()
	must(t, err)
	var outs [4]bytes.Buffer
	var cmds [len(outs)]*exec.Cmd
	for id := range cmds {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), dirKey+"="+dir, fmt.Sprintf("%s=%d", idKey, id))
		cmd.Stdin, cmd.Stdout, cmd.Stderr = start, &outs[id], &outs[id]
		must(t, cmd.Start())
		cmds[id] = cmd
	}
	starter.Close()
	start.Close()
	for id, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, &outs[id])
		}
		for lines := bufio.NewScanner(&outs[id]); lines.Scan(); {
			var n int
			var id string
			if _, err := fmt.Sscanf(lines.Text(), "won %d %s", &n, &id); err == nil {
				won[n] = append(won[n], id)
			}
		}
	}
	return won
}

// claims are the files, the specs and the socket directories of an attachment.
func claims(t *testing.T, j *journal.Journal, k journal.Key) (list [3][]string) {
	t.Helper()
	for n, claimed := range []func(journal.Key) ([]string, error){j.Claims, j.SpecClaims, j.SocketClaims} {
		var err error
		list[n], err = claimed(k)
		must(t, err)
	}
	return list
}

// Claimed, used, and given up again and again: nobody may lose what it has to somebody who
// has seen the claim that was there before.
func TestWhatIsClaimedIsNobodyElsesUntilItIsGivenUp(t *testing.T) {
	j, dir := open(t)
	var users atomic.Int32
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for round := range 150 {
				e := &journal.Entry{Key: key(fmt.Sprint(n, "-", round), "net1"), File: "f", CDI: journal.CDI{File: "s"}, SocketDir: "/d", Pod: fmt.Sprint(n)}
				_, err := j.Put(e, nil)
				var owned *journal.OwnedError
				if errors.As(err, &owned) {
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				if users.Add(1) > 1 {
					t.Error("two have it")
				}
				expectOwner(t, j, "f", e.Key, true)
				users.Add(-1)
				if round%3 == 0 { // killed, with the claims left
					err = os.Remove(filepath.Join(dir, "attachments", "n@"+e.Key.ContainerID+"@net1"))
				} else {
					err = j.Forget(e)
				}
				if err := errors.Join(err, j.Sweep(func(string) {})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	must(t, j.Sweep(func(string) {}))
	expectFiles(t, dir)
}

// A killed ADD has left the claim, which did not count. While Sweep, or another who wants
// the file, is about to remove it, the ADD is repeated: it must not take that claim for
// its own.
func TestAClaimThatIsAboutToBeRemovedIsNotReliedOn(t *testing.T) {
	for _, kind := range []string{"files/f", "cdi/s"} {
		j, dir := open(t)
		e := &journal.Entry{Key: key1, File: "f", CDI: journal.CDI{File: "s"}}
		putEntry(t, j, e)
		remove(t, filepath.Join(dir, "attachments/net-a@c0ffee@net1"))
		remover := privatetest.Lock(t, filepath.Join(dir, filepath.Dir(kind)))
		var err error
		done := make(chan struct{})
		go func() { _, err = j.Put(e, nil); close(done) }()
		if !privatetest.Await(t, remover, done) {
			t.Errorf("%s: Put did not wait", kind)
		}
		remove(t, filepath.Join(dir, kind))
		remover.Close()
		<-done
		must(t, err)
		if got := claims(t, j, key1); !reflect.DeepEqual(got, [3][]string{{"f"}, {"s"}, nil}) {
			t.Errorf("%s: has claimed %q", kind, got)
		}
	}
}

// The last attachment of a pod gives the directory up while the next pod claims it.
func TestASocketDirectoryIsNotDroppedUnderAClaim(t *testing.T) {
	j, dir := open(t)
	e := putSockets(t, j, key1, "p", "/d")
	remove(t, filepath.Join(dir, "sockets/d/net-a@c0ffee@net1")) // a DEL that was killed
	claimer := privatetest.Lock(t, filepath.Join(dir, "sockets"))
	var err error
	done := make(chan struct{})
	go func() { err = j.Forget(e); close(done) }()
	if !privatetest.Await(t, claimer, done) {
		t.Error("Forget did not wait")
	}
	link(t, "../../attachments/net-a@decade@net1", filepath.Join(dir, "sockets/d/net-a@decade@net1"))
	claimer.Close()
	<-done
	must(t, err)
	expectFiles(t, dir, "sockets/d/", "sockets/d/net-a@decade@net1 -> ../../attachments/net-a@decade@net1")
}

func TestParallelAttachmentsDoNotMeet(t *testing.T) {
	j, dir := open(t)
	var all sync.WaitGroup
	for n := range 32 {
		all.Go(func() {
			k := key(fmt.Sprint("c", n), "net1")
			for range 5 {
				undo, err := j.Put(&journal.Entry{Key: k, File: k.ContainerID, SocketDir: "/shared", Pod: "p"}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				expectOwner(t, j, k.ContainerID, k, true)
				if err := undo(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	expectFiles(t, dir)
}
