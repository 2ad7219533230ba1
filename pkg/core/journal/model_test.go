package journal_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"devinfo-cni.io/pkg/core/journal"
)

// lineages describes a machine with two PFs of two VFs each, and a vDPA device on one VF. Each list starts
// with a device; the devices that contain it follow.
var lineages = [][]string{
	{"pci-pf0"}, {"pci-vf0", "pci-pf0"}, {"pci-vf1", "pci-pf0"}, {"vdpa-v", "pci-vf1", "pci-pf0"},
	{"pci-pf1"}, {"pci-vf2", "pci-pf1"}, {"pci-vf3", "pci-pf1"},
}

// world is the model of the leases, which it keeps in memory only.
type world struct {
	*testing.T
	rand    *rand.Rand
	dir     string
	boot    int
	j       *journal.Journal
	holding map[string]grasp // by name of the attachment or claim
	objects map[string]uint64
	dead    map[string]bool // network namespaces that no longer exist
	next    int
}

// grasp is the model of one holder. Its leases cover a device and the devices that contain it.
type grasp struct {
	pods   []string
	leases []journal.DeviceLease
	netns  string // "" = a claim, which may outlive its network namespace
	boot   int
	entry  *journal.Entry
	claim  *journal.Claim
}

func (w *world) open() {
	w.j = journal.Open(w.dir, fmt.Sprint("boot", w.boot))
	w.j.NetnsGone = func(path string) (bool, error) { return w.dead[path], nil }
}

// counts reports whether a grasp still excludes other holders.
func (w *world) counts(g grasp) bool { return g.boot == w.boot && (g.netns == "" || !w.dead[g.netns]) }

// free is the rule for leases: no other pod may have one of the devices, unless both leases are shared.
func (w *world) free(pods []string, leases []journal.DeviceLease) bool {
	for _, g := range w.holding {
		if !w.counts(g) || slices.ContainsFunc(pods, func(p string) bool { return slices.Contains(g.pods, p) }) {
			continue
		}
		for _, has := range g.leases {
			for _, want := range leases {
				if has.ID == want.ID && (has.Object == 0 || want.Object == 0 || has.Object == want.Object) && (has.Mode == journal.Exclusive || want.Mode == journal.Exclusive) {
					return false
				}
			}
		}
	}
	return true
}

func (w *world) leases() (list []journal.DeviceLease) {
	mode := journal.Exclusive
	if w.rand.IntN(3) == 0 {
		mode = journal.Shared
	}
	for _, id := range lineages[w.rand.IntN(len(lineages))] {
		list = append(list, journal.DeviceLease{ID: id, Mode: mode, Object: w.objects[id]})
		mode = journal.Shared
	}
	return list
}

func (w *world) take() {
	w.next++
	name, pod, leases := fmt.Sprint("h", w.next), fmt.Sprint("pod", w.rand.IntN(4)), w.leases()
	g, netns := grasp{pods: []string{pod}, leases: leases, boot: w.boot}, fmt.Sprint("/run/netns/", pod, w.boot)
	var owner journal.Lessee
	var record func() error
	if w.rand.IntN(3) == 0 { // take the leases of a claim, whether or not its network namespace exists
		g.claim = &journal.Claim{UID: name, Pods: g.pods, Netns: netns, Leases: leases}
		owner, record = g.claim, func() error { return w.j.Hold(g.claim) }
	} else {
		if g.netns = netns; w.dead[netns] {
			return // the runtime sends no ADD for a missing network namespace
		}
		g.entry = &journal.Entry{Key: key(name, "net1"), Pod: pod, Netns: netns, Leases: leases}
		owner, record = g.entry, func() error { return w.j.Put(g.entry, nil) }
	}
	refused, err := w.j.Free(owner), record()
	g.entry.Unlock()
	held := new(journal.HeldError)
	if free := w.free(g.pods, leases); free != (err == nil) || free != (refused == nil) || err != nil && !errors.As(err, &held) {
		w.Fatalf("%s of %s takes %v: free in the model: %v; errors of the journal: %v and %v", name, pod, leases, free, refused, err)
	}
	if err == nil {
		w.holding[name] = g
	}
	if g.entry != nil && w.j.Has(g.entry, leases[0].ID, leases[0].Object) != (err == nil && leases[0].Mode == journal.Exclusive) {
		w.Fatalf("%s has %v: Has of the journal disagrees", name, leases)
	}
}

// drop releases the leases of one holder. At random it stops halfway, like a process that is killed.
func (w *world) drop() {
	for name, g := range w.holding {
		switch killed := w.rand.IntN(4) == 0; {
		case killed && g.entry != nil:
			must(w.T, os.Remove(filepath.Join(w.dir, "attachments", "n@"+name+"@net1")))
		case killed && g.boot == w.boot: // the sweep of the next boot removes its lease
			must(w.T, os.Remove(filepath.Join(w.dir, "claims", name)))
		case g.entry != nil:
			must(w.T, w.j.Forget(g.entry))
		default:
			must(w.T, release(w.j, g.claim.FileName()))
		}
		delete(w.holding, name)
		return
	}
}

// Random calls must succeed or fail as the model predicts, and releasing all leases must leave an empty state
// directory.
func TestLeasesMatchModel(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := &world{T: t, rand: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), holding: map[string]grasp{}, objects: map[string]uint64{}, dead: map[string]bool{}}
			w.open()
			for range 150 {
				switch n := w.rand.IntN(40); {
				case n < 20:
					w.take()
				case n < 34:
					w.drop()
				case n < 36:
					must(t, w.j.Sweep(func(string) {}))
				case n < 38: // a pod's network namespace ends before its DEL
					w.dead[fmt.Sprintf("/run/netns/pod%d%d", w.rand.IntN(4), w.boot)] = true
				case n < 39: // another VF is plugged in under the same name
					w.objects[lineages[w.rand.IntN(len(lineages))][0]] = w.rand.Uint64()
				default:
					w.boot++
					w.open()
				}
			}
			for _, name := range slices.Collect(maps.Keys(w.holding)) {
				if g := w.holding[name]; g.entry != nil {
					must(t, w.j.Forget(g.entry))
				} else {
					must(t, release(w.j, g.claim.FileName()))
				}
			}
			must(t, w.j.Sweep(func(string) {}))
			expectFiles(t, w.dir)
		})
	}
}

// Each goroutine repeatedly takes and releases the leases of one device. A sweep that read a stale lease must
// not remove the one that replaced it.
func TestExclusiveLeaseHasOneHolderAtATime(t *testing.T) {
	j, dir := open(t)
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	var users atomic.Int32
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for round := range rounds {
				e := everything(key(fmt.Sprint(n, "-", round), "net1"), fmt.Sprint(n))
				err := j.Put(e, nil)
				if held := new(journal.HeldError); errors.As(err, &held) {
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				if users.Add(1) > 1 {
					t.Error("two holders at a time")
				}
				if !j.Has(e, "pci-vf", 0) || !j.Holds(e.Key, journal.OfFile, "f") {
					t.Error("the lease was removed")
				}
				users.Add(-1)
				e.Unlock()
				if round%3 == 0 { // a killed process leaves its leases
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
