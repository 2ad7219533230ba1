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
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"devinfo-cni.io/pkg/journal"
)

// wanted is an entry that wants one thing, of the kind that the number says.
func wanted(k journal.Key, n int) *journal.Entry {
	name := fmt.Sprint("w", n)
	return []*journal.Entry{
		{Key: k, File: name}, {Key: k, CDI: journal.CDI{File: name}}, {Key: k, SocketDir: "/" + name, Pod: k.ContainerID},
		{Key: k, Leases: has(name, journal.Exclusive), Pod: k.ContainerID},
	}[n%4]
}

const rounds = 30

// Some leases are stale: these are removed first, by one of those who want them.
func TestOfManyProcessesThatWantOneThingExactlyOneGetsIt(t *testing.T) {
	if dir := os.Getenv(dirKey); dir != "" {
		wantAll(t, journal.Open(dir, boot))
		return
	}
	j, dir := open(t)
	for n := range rounds {
		if n%2 == 0 {
			record(t, journal.Open(dir, "an older boot"), wanted(key(fmt.Sprint("old", n), "net1"), n))
		}
	}
	won := compete(t, dir)
	for n := range rounds {
		if len(won[n]) != 1 {
			t.Errorf("round %d: won by %q", n, won[n])
			continue
		}
		must(t, j.Forget(former(t, j, key(won[n][0], "net1"))))
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
		e := wanted(key(id, "net1"), n)
		err := j.Record(e, nil)
		e.Unlock()
		var owned *journal.HeldError
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

// Taken, used, and given back again and again: nobody may lose what it has to somebody who
// has seen the lease that was there before.
func TestWhatIsLeasedIsNobodyElsesUntilItIsGivenBack(t *testing.T) {
	j, dir := open(t)
	var users atomic.Int32
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for round := range 100 {
				e := everything(key(fmt.Sprint(n, "-", round), "net1"), fmt.Sprint(n))
				err := j.Record(e, nil)
				if held := new(journal.HeldError); errors.As(err, &held) {
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				if users.Add(1) > 1 {
					t.Error("two have it")
				}
				if !j.Has(e, "pci-vf", 0) || !j.Holds(e.Key, journal.OfFile, "f") {
					t.Error("it has been taken away")
				}
				users.Add(-1)
				e.Unlock()
				if round%3 == 0 { // killed, with the leases left
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

func TestPodsThatShareADeviceDoNotMeet(t *testing.T) {
	j, dir := open(t)
	var all sync.WaitGroup
	for n := range 32 {
		all.Go(func() {
			k := key(fmt.Sprint("c", n), "net1")
			for range 5 {
				e := &journal.Entry{Key: k, File: k.ContainerID, Pod: k.ContainerID, Leases: has("pci-pf", journal.Shared)}
				if err := j.Record(e, nil); err != nil {
					t.Error(err)
					return
				}
				e.Unlock()
				if err := j.Forget(e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	expectFiles(t, dir)
}

// The first two of a node may meet where there is no directory yet.
func TestTheFirstRecordsOfANodeMayMeet(t *testing.T) {
	for range 60 {
		j, _ := open(t)
		begin := make(chan struct{})
		var all sync.WaitGroup
		for n := range 12 {
			all.Go(func() {
				e := &journal.Entry{Key: key(fmt.Sprint("c", n), "net1"), File: fmt.Sprint("f", n)}
				<-begin
				if err := j.Record(e, nil); err != nil {
					t.Error(err)
				}
				e.Unlock()
			})
		}
		close(begin)
		all.Wait()
	}
}
