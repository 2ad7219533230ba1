package main

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
)

// An attachment is one interface of one container in one network of one runtime. What
// the ledger guards is under the ledger's lock; the rest is set once.
type attachment struct {
	kind      *kind
	container string
	ifName    string
	netns     string
	vf        string
	runtime   int // whose it is: the number of its cache

	phase   phase
	changes int // of the phase, and of what a call may have changed
}

// The phases of an attachment. One that is absent, present or abandoned has no call of
// its worker's under way.
type phase int

const (
	absent    phase = iota // and to be added
	busy                   // a call of the worker's is under way, or was killed
	present                // as ADD left it
	abandoned              // its pod is gone, and the runtime's GC shall find that
	leaving                // it is left out of the list of a GC that runs
	collected              // by a GC
	done                   // for ever
)

// A ledger is the runtimes' book of what is on the node. What it lists for a GC as valid
// are all attachments that are not done, those too that are not there yet: a list that
// leaves out what is being added would be the runtime's fault.
type ledger struct {
	*node
	sync.Mutex
	all []*attachment
}

func newLedger(n *node, count int) *ledger {
	l := &ledger{node: n}
	for i := range count {
		pod := i % len(n.pods)
		l.all = append(l.all, &attachment{
			kind: kinds[i/len(n.pods)%len(kinds)], container: fmt.Sprintf("%032x%032x", *seed, pod+1),
			ifName: fmt.Sprint("net", i/len(n.pods)), netns: n.pods[pod], vf: hosttxttest.VF(i), runtime: (i + i/len(n.pods)) % 2,
		})
	}
	return l
}

// to puts an attachment into a phase.
func (l *ledger) to(a *attachment, p phase) {
	l.Lock()
	defer l.Unlock()
	a.phase = p
	a.changes++
}

// is says whether an attachment is in a phase.
func (l *ledger) is(a *attachment, p phase) bool {
	l.Lock()
	defer l.Unlock()
	return a.phase == p
}

// valid is the list for a GC of the network, from which some of the abandoned
// attachments are left out, by chance.
func (l *ledger) valid(network string, chance *rand.Rand) (list []types.GCAttachment, out []*attachment) {
	l.Lock()
	defer l.Unlock()
	list = []types.GCAttachment{} // and not null
	for _, a := range l.all {
		switch {
		case a.kind.network != network || a.phase == done:
		case a.phase == abandoned && chance.IntN(2) == 0:
			a.phase = leaving
			a.changes++
			out = append(out, a)
		default:
			list = append(list, types.GCAttachment{ContainerID: a.container, IfName: a.ifName})
		}
	}
	return list, out
}

// still are the attachments that are in that phase, with the number of their changes.
func (l *ledger) still(p phase) map[*attachment]int {
	l.Lock()
	defer l.Unlock()
	list := map[*attachment]int{}
	for _, a := range l.all {
		if a.phase == p {
			list[a] = a.changes
		}
	}
	return list
}

// unchanged takes those out of the list that have changed since.
func (l *ledger) unchanged(list map[*attachment]int) {
	l.Lock()
	defer l.Unlock()
	for a, changes := range list {
		if a.changes != changes {
			delete(list, a)
		}
	}
}
