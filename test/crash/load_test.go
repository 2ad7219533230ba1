package crash_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/node"
	"devinfo-cni.io/test/undertest"
)

// Environment variables with the size of the load.
const (
	attachmentsKey = "DEVINFO_CRASH_ATTACHMENTS"
	workersKey     = "DEVINFO_CRASH_WORKERS"
)

const (
	killedIn = 15 // one of this many calls is killed
	tries    = 20 // attempts for a call that was killed or must be repeated
)

// A load is a node with many attachments, its members.
type load struct {
	*world
	size    int // number of members that can be attached at the same time
	members []*member
	left    map[string]chan *member // members that GC must collect, by network

	mu                    sync.Mutex
	holders               map[string]*member // holders of devices, from the end of an ADD until a call ends the attachment
	problems              []string
	calls, kills, refused int
}

// A member is the attachment of a pod of its own. Only its worker changes it.
type member struct {
	attachment
	network   string
	conf      conf
	device    string // device that it must hold exclusively; "" = none
	result    string // result of ADD; "" = not attached
	collected chan struct{}
}

// loads are the kinds of attachments that the load test makes. Each kind has its own network.
var loads = []struct {
	network   string
	conf      func(attachment, string) conf
	exclusive bool
}{
	{marker, attachment.marker, true},
	{"vf", func(a attachment, network string) conf { return a.standalone(network).with(conf{"cdi": true}) }, false},
	{"socket", attachment.socket, false},
	{"macvlan", attachment.macvlan, true},
	{"bridge", attachment.bridge, true},
}

// Many workers attach, check and detach at the same time. Some attachments are left to GC, and some calls are killed.
// Two members request each exclusive device.
func TestLoadLosesNoState(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		l := newLoad(w, number(t, attachmentsKey, "40"))
		stop := l.collectors()
		crew := l.crew(number(t, workersKey, "8"))
		l.all(crew, (*worker).fill)
		l.complete()
		l.all(crew, (*worker).drain)
		stop()
		l.reap()
		for _, k := range loads {
			l.must("GC", attachment{}, ours.base(k.network))
		}
		now := view.Take(t)
		l.problems = slices.Concat(l.problems, l.base.Left(now), trampled(l.base, now))
		if n := len(l.problems); n > 0 {
			t.Errorf("seed %d: %d problems:\n%s", seed(t), n, strings.Join(l.problems[:min(20, n)], "\n"))
		}
		t.Logf("%d attachments, %d workers, %d calls, %d killed, %d refused", l.size, len(crew), l.calls, l.kills, l.refused)
	})
}

func number(t *testing.T, key, usual string) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(key), usual))
	if err != nil || n < 1 {
		t.Fatalf("%s=%s", key, os.Getenv(key))
	}
	return n
}

func newLoad(w *world, size int) *load {
	l := &load{world: w, size: size, left: map[string]chan *member{}, holders: map[string]*member{}}
	l.fine(os.RemoveAll(node.Sys))
	l.fine(undertest.Unpack(capturetest.ManyVFs(size), node.Sys))
	for i := range size {
		k := loads[i%len(loads)]
		l.member(k.network, k.conf, capturetest.VF(i), k.exclusive)
		if k.exclusive {
			l.member(marker, attachment.marker, capturetest.VF(i), true)
		}
	}
	for _, k := range loads {
		l.left[k.network] = make(chan *member, 2*size)
	}
	l.warmUp()
	l.base = view.Take(l.t)
	return l
}

func (l *load) member(network string, kind func(attachment, string) conf, device string, exclusive bool) {
	l.t.Helper()
	n := len(l.members)
	id := fmt.Sprintf("10ad0000-0000-4000-8000-%012x", n) // of the container and of its pod
	m := &member{attachment: attachment{id, fmt.Sprint("net", n), []string{podNetns, otherNetns}[n%2], id}, network: network}
	m.conf = kind(m.attachment, network)
	if m.conf["deviceID"] != nil {
		m.conf["deviceID"] = device
	}
	if exclusive {
		m.device = device
	}
	l.fine(os.Mkdir(filepath.Join(socketDirs, m.container), 0o755))
	l.members = append(l.members, m)
}

// warmUp attaches and detaches one member of each network, so that files that are created once exist.
func (l *load) warmUp() {
	l.t.Helper()
	seen := map[string]bool{}
	for _, m := range l.members {
		if !seen[m.network] {
			seen[m.network] = true
			l.must("ADD", m.attachment, m.conf)
			l.must("DEL", m.attachment, m.conf)
		}
	}
	br, err := netlink.LinkByName("br0")
	if err == nil { // otherwise the bridge has the address of a port, and CHECK would find a difference
		l.fine(netlink.LinkSetHardwareAddr(br, net.HardwareAddr{2, 0, 0, 0, 0, 1}))
	}
}

// A worker makes one call at a time.
type worker struct {
	*load
	seat   *node.Seat
	random *rand.Rand
	mine   []*member
	points map[string]int // number of calls at which it can be killed, by network and verb
}

func (l *load) worker(number int) *worker {
	l.t.Helper()
	random := rand.New(rand.NewPCG(seed(l.t), uint64(number)))
	return &worker{load: l, seat: node.NewSeat(l.t, inject.Changes), random: random, points: map[string]int{}}
}

// crew distributes the members to workers.
func (l *load) crew(size int) (crew []*worker) {
	l.t.Helper()
	for n := range size {
		crew = append(crew, l.worker(n))
	}
	for n, at := range crew[0].random.Perm(len(l.members)) {
		w := crew[n%size]
		w.mine = append(w.mine, l.members[at])
	}
	return crew
}

func (l *load) all(crew []*worker, do func(*worker)) {
	var all sync.WaitGroup
	for _, w := range crew {
		all.Go(func() { do(w) })
	}
	all.Wait()
}

// collectors starts the GC of each network.
func (l *load) collectors() (stop func()) {
	l.t.Helper()
	var all sync.WaitGroup
	for n, k := range loads {
		w := l.worker(1000 + n)
		all.Go(func() { w.collect(k.network) })
	}
	return func() {
		for _, left := range l.left {
			close(left)
		}
		all.Wait()
	}
}

// wrong records a problem.
func (l *load) wrong(what string, m *member, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, fmt.Sprintf("%s %s/%s: %s", what, m.network, m.ifName, why))
}

// call makes one call, or kills it.
func (w *worker) call(verb string, m *member, c conf) node.Outcome {
	point, last := 0, 0
	if n := w.points[m.network+verb]; n > 0 && w.random.IntN(killedIn) == 0 {
		point = 1 + w.random.IntN(n)
	}
	o, err := w.seat.Run(w.command(verb, m.attachment, c), func(c inject.Call) inject.Verdict {
		if !c.Child {
			last = c.N
		}
		return inject.Verdict{Kill: !c.Child && c.N == point}
	})
	if err != nil {
		w.wrong(verb, m, err.Error())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls++; o.Exit == -1 {
		w.kills++
	} else {
		w.points[m.network+verb] = last
	}
	return o
}

// until repeats a call that was killed or must be repeated. It reports whether the call succeeded.
func (w *worker) until(verb string, m *member, c conf) bool {
	for range tries {
		switch o := w.call(verb, m, c); {
		case o.Exit == 0:
			return true
		case o.Exit > 0 && o.Printed().Code != tryAgain:
			w.wrong(verb, m, o.Failure())
			return false
		}
	}
	w.wrong(verb, m, "it never succeeds")
	return false
}

// add attaches a member, unless its rival has the device.
func (w *worker) add(m *member) {
	const held = 104
	for range tries {
		o := w.call("ADD", m, m.conf)
		switch {
		case o.Exit == 0:
			w.attached(m, o.Stdout)
			return
		case o.Exit == -1 && w.random.IntN(3) > 0: // in the other cases the next ADD repeats it
			continue
		case o.Exit > 0 && o.Printed().Code == held && m.device != "":
			w.mu.Lock()
			w.refused++
			w.mu.Unlock()
			w.del(m)
			return
		case o.Exit > 0 && o.Printed().Code != tryAgain && !strings.Contains(o.Failure(), "DEL first"):
			w.wrong("ADD", m, o.Failure())
			return
		}
		w.del(m)
	}
	w.wrong("ADD", m, "it never succeeds")
}

func (l *load) attached(m *member, result string) {
	m.result = result
	if path := m.path(m.network); m.network != "socket" {
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), fmt.Sprintf("%q", m.conf["deviceID"])) {
			l.wrong("ADD", m, fmt.Sprintf("the device-info file: %s %v", text, err))
		}
	}
	if m.device == "" {
		return
	}
	l.mu.Lock()
	other := l.holders[m.device]
	l.holders[m.device] = m
	l.mu.Unlock()
	if other != nil {
		l.wrong("ADD", m, fmt.Sprintf("%s/%s has %s too", other.network, other.ifName, m.device))
	}
}

// ends must be called before a call that ends the attachment.
func (l *load) ends(m *member) {
	m.result = ""
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders[m.device] == m {
		delete(l.holders, m.device)
	}
}

// gone checks that no state of a member is left.
func (l *load) gone(verb string, m *member) {
	for _, path := range []string{m.path(m.network), filepath.Join(stateDir, "attachments", m.network+"@"+m.container+"@"+m.ifName)} {
		if _, err := os.Lstat(path); err == nil {
			l.wrong(verb, m, path+" is still there")
		}
	}
}

func (w *worker) del(m *member) {
	w.ends(m)
	if w.until("DEL", m, m.conf) {
		w.gone("DEL", m)
	}
}

func (w *worker) check(m *member) {
	w.until("CHECK", m, m.conf.with(conf{"prevResult": json.RawMessage(m.result)}))
}

// leave leaves a member to GC, and regain waits until GC has collected it. Then regain runs DEL, like a runtime that
// did not know of the GC.
func (w *worker) leave(m *member) {
	w.ends(m)
	m.collected = make(chan struct{})
	w.left[m.network] <- m
}

func (w *worker) regain(m *member) {
	if m.collected != nil {
		<-m.collected
		m.collected = nil
		w.del(m)
	}
}

// collect runs GC for the members that are left to it. All other members are valid, including those that are not
// attached yet.
func (w *worker) collect(network string) {
	for m := range w.left[network] {
		out := []*member{m}
		for len(w.left[network]) > 0 {
			out = append(out, <-w.left[network])
		}
		valid := []any{}
		for _, a := range w.members {
			if a.network == network && !slices.Contains(out, a) {
				valid = append(valid, conf{"containerID": a.container, "ifname": a.ifName})
			}
		}
		done := w.until("GC", m, m.conf.gc().with(conf{"cni.dev/valid-attachments": valid}))
		for _, a := range out {
			if done {
				w.gone("GC", a)
			}
			close(a.collected)
		}
	}
}

// listed checks that devinfoctl lists exactly these members.
func (l *load) listed(asked ...*member) {
	cmd := exec.Command(l.ctl, "list", "-o", "json", "--node-config", node.Settings)
	out, err := cmd.Output()
	var list struct {
		Attachments []struct{ ContainerID, State string }
	}
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		l.wrong("list", asked[0], fmt.Sprintf("%v: %s", err, out))
		return
	}
	states := map[string]string{}
	for _, a := range list.Attachments {
		states[a.ContainerID] += a.State
	}
	for _, m := range asked {
		if want := map[bool]string{true: "Ok"}[m.result != ""]; states[m.container] != want {
			l.wrong("list", m, fmt.Sprintf("its state is %q, not %q", states[m.container], want))
		}
	}
}

// fill attaches all members of a worker. At random times it runs another call for one of them.
func (w *worker) fill() {
	for _, m := range w.mine {
		w.add(m)
		other := w.mine[w.random.IntN(len(w.mine))]
		if other.result == "" {
			continue
		}
		switch w.random.IntN(7) {
		case 0, 1:
			w.check(other)
		case 2:
			w.listed(other)
		case 3:
			w.del(other)
			w.add(other)
		case 4:
			w.leave(other)
		}
	}
	for _, m := range w.mine {
		if m.result == "" {
			w.regain(m)
			w.add(m)
		}
	}
}

// complete checks that one member of each device is attached. If two ADDs overlapped, both may have been refused, so
// it adds one of them again.
func (l *load) complete() {
	l.t.Helper()
	w := l.worker(2000)
	attached := 0
	for _, m := range l.members {
		if m.result == "" && l.holders[m.device] == nil {
			w.add(m)
		}
		if m.result != "" {
			attached++
		}
	}
	if attached != l.size {
		l.t.Errorf("%d of %d are attached", attached, l.size)
	}
	l.listed(l.members...)
}

// drain detaches all members of a worker.
func (w *worker) drain() {
	w.random.Shuffle(len(w.mine), func(i, j int) { w.mine[i], w.mine[j] = w.mine[j], w.mine[i] })
	for _, m := range w.mine {
		if m.result != "" && w.random.IntN(2) == 0 {
			w.check(m)
		}
		if m.result != "" && w.random.IntN(5) == 0 {
			w.leave(m)
		} else {
			w.del(m)
		}
	}
	for _, m := range w.mine {
		w.regain(m)
	}
}
