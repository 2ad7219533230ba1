package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"devinfo-cni.io/pkg/journal"
)

// rounds are a fifth of all with -short.
func rounds(all int) int {
	if testing.Short() {
		return all / 5
	}
	return all
}

// Taken, used, and given back again and again: nobody may lose what it has to somebody who
// has seen the lease that was there before.
func TestWhatIsLeasedIsNobodyElsesUntilItIsGivenBack(t *testing.T) {
	j, dir := open(t)
	var users atomic.Int32
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for round := range rounds(100) {
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

// The first of a node may meet where there is no directory yet, and the last where one goes.
func TestPodsThatShareADeviceDoNotMeet(t *testing.T) {
	for range rounds(60) {
		j, dir := open(t)
		begin := make(chan struct{})
		var all sync.WaitGroup
		for n := range 12 {
			all.Go(func() {
				k := key(fmt.Sprint("c", n), "net1")
				e := &journal.Entry{Key: k, File: k.ContainerID, Pod: k.ContainerID, Leases: has("pci-pf", journal.Shared)}
				<-begin
				for range 3 {
					err := j.Record(e, nil)
					e.Unlock()
					if err = errors.Join(err, j.Forget(e)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		close(begin)
		all.Wait()
		expectFiles(t, dir)
	}
}
