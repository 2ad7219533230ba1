package crash_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"

	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/node"
)

// A kind is a kind of attachment in the interleavings.
type kind struct {
	name   string
	device string // device that a claim may request too
	conf   func(attachment) conf
}

var delegating = kind{"delegate", vf, func(a attachment) conf { return a.marker("net").with(conf{"cdi": true}) }}

var kinds = []kind{
	{"file and spec", vf, func(a attachment) conf { return a.standalone("net").with(conf{"cdi": true}) }},
	{"socket", vf, func(a attachment) conf { return a.socket("net") }},
	delegating,
}

// Attachments of the same container and interface as ours. elsewhere is in another network namespace, as if a
// runtime had restarted the container. The network namespace of departed no longer exists.
var (
	elsewhere = attachment{ours.container, ours.ifName, otherNetns, podUID}
	departed  = attachment{ours.container, ours.ifName, "/run/netns/departed", podUID}
)

const devinfoctl = "devinfoctl gc"

// A step is one call of a program in a part.
type step struct {
	verb string
	of   attachment // empty for GC and claims
	all  bool       // GC with an empty list of valid attachments
	cmd  *exec.Cmd
}

// ends reports whether the step ends the attachments of a container.
func (s step) ends(container string) bool {
	return s.verb == "DEL" && s.of.container == container || s.all
}

// A part is the sequence of steps that one of the two competing programs runs.
type part struct {
	name  string
	has   *attachment // if this part is the stopped one: attachment that exists before it
	steps func(*stage) []step
}

var (
	addPart      = part{"ADD", nil, func(s *stage) []step { return []step{s.add(ours)} }}
	otherPodPart = part{"ADD by another pod", nil, func(s *stage) []step { return []step{s.add(neighbour)} }}
	claimPart    = part{"claim", nil, func(s *stage) []step { return []step{s.claim()} }}
)

// stoppable returns the parts that are stopped before one of their calls.
func stoppable(k kind) []part {
	list := []part{
		addPart,
		{"CHECK", &ours, func(s *stage) []step { return []step{s.check(s.earlier[0])} }},
		{"DEL", &ours, func(s *stage) []step { return []step{s.del(ours)} }},
		{"GC", &ours, func(s *stage) []step { return []step{s.gcOfAll()} }},
		{"GC without a list", &departed, func(s *stage) []step { return []step{s.gc(nil)} }},
		{devinfoctl, &departed, func(s *stage) []step { return []step{s.tool()} }},
	}
	if k.name != delegating.name { // delegates of this kind need a DEL before the next ADD
		list = append(list, part{"repeated ADD", &departed, func(s *stage) []step { return []step{s.add(ours)} }})
	}
	return list
}

// actors returns the parts that run while another part is stopped.
func actors() []part {
	return []part{
		{"DEL", nil, func(s *stage) []step { return []step{s.del(ours)} }},
		{"DEL and ADD", nil, func(s *stage) []step { return []step{s.del(ours), s.add(ours)} }},
		{"DEL and ADD elsewhere", nil, func(s *stage) []step { return []step{s.del(ours), s.add(elsewhere)} }},
		{"second ADD", nil, func(s *stage) []step { return []step{s.add(ours)} }},
		otherPodPart,
		{"GC", nil, func(s *stage) []step { return []step{s.gc([]attachment{ours, neighbour})} }},
		{"GC of all", nil, func(s *stage) []step { return []step{s.gcOfAll()} }},
		{"GC without a list", nil, func(s *stage) []step { return []step{s.gc(nil)} }},
		claimPart,
	}
}

func (s *stage) add(a attachment) step {
	return step{verb: "ADD", of: a, cmd: s.command("ADD", a, s.conf(a))}
}

func (s *stage) del(a attachment) step {
	return step{verb: "DEL", of: a, cmd: s.command("DEL", a, s.conf(a))}
}

// check returns the CHECK of an attachment that an ADD made.
func (s *stage) check(added act) step {
	c := s.conf(added.of).with(conf{"prevResult": json.RawMessage(added.Stdout)})
	return step{verb: "CHECK", of: added.of, cmd: s.command("CHECK", added.of, c)}
}

// gc returns a GC with a list of valid attachments; nil = without a list.
func (s *stage) gc(valid []attachment) step {
	c := s.conf(ours).gc()
	var list []any
	for _, a := range valid {
		list = append(list, conf{"containerID": a.container, "ifname": a.ifName})
	}
	if c["cni.dev/valid-attachments"] = list; list == nil {
		delete(c, "cni.dev/valid-attachments")
	}
	return step{verb: "GC", cmd: s.command("GC", ours, c)}
}

func (s *stage) gcOfAll() step {
	return step{verb: "GC", all: true, cmd: s.command("GC", ours, s.conf(ours).gc())}
}

func (s *stage) tool() step {
	cmd := exec.Command(s.ctl, "gc", "--yes", "--node-config", node.Settings, "--cni-path", s.cniPath)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	return step{verb: devinfoctl, cmd: cmd}
}

func (s *stage) claim() step {
	return step{verb: claimant, cmd: exec.Command(node.Bin+"/"+claimant, s.device)}
}

// An act is a step that was run, with its start and end.
type act struct {
	step
	node.Outcome
	began, ended int
	broken       error // error of the test, or of a program that hangs
}

// run runs a step.
func (s *stage) run(where *node.Seat, st step, decide func(inject.Call) inject.Verdict) act {
	a := act{step: st, began: s.tick()}
	if a.Outcome, a.broken = where.Run(st.cmd, decide); a.broken != nil {
		a.Exit = -1
	}
	a.ended = s.tick()
	return a
}

// A stage is a world in which two programs run at the same time.
type stage struct {
	*world
	kind
	first, second *node.Seat
	owns          map[string]node.Snapshot // state of an attachment, by container
	earlier       []act                    // steps that ran before the two programs started
	clock         atomic.Int64
}

// newStage prepares a world for attachments of a kind.
func newStage(w *world, k kind) *stage {
	t := w.t
	t.Helper()
	s := &stage{
		world: w, kind: k, owns: map[string]node.Snapshot{},
		first: node.NewSeat(t, inject.Changes|inject.Reads|inject.Locks), second: node.NewSeat(t, inject.Locks),
	}
	for _, b := range bystanders()[:2] { // one with a device, one with a socket
		s.must("ADD", b.attachment, b.conf)
	}
	for range 2 { // the first round also creates files that stay
		s.base = view.Take(t)
		for _, a := range []attachment{ours, neighbour} {
			s.must("ADD", a, k.conf(a))
			s.owns[a.container] = view.Take(t).Beyond(s.base)
			s.must("DEL", a, k.conf(a))
		}
		s.fine(hold(k.device))
		s.fine(release(k.device))
		s.must("GC", ours, k.conf(ours))
	}
	s.base = view.Take(t)
	return s
}

// answer prints the error of a test's plugin and exits.
func answer(err error) {
	if err != nil {
		fmt.Printf(`{"cniVersion": "1.1.0", "code": 5, "msg": %q}`, err)
		os.Exit(1)
	}
}

// The plugin marker creates a file for each attachment at the end of its ADD. It is a delegate. If the DEL of its
// caller did not wait for a running ADD, the file would remain.
const (
	marker  = "marker"
	markDir = "/run/marks"
)

// mark is the plugin marker.
func mark() error {
	file := filepath.Join(markDir, os.Getenv("CNI_CONTAINERID")+"_"+os.Getenv("CNI_IFNAME"))
	switch os.Getenv("CNI_COMMAND") {
	case "ADD":
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			return err
		}
		_, err := fmt.Printf(`{"cniVersion": "1.1.0", "interfaces": [{"name": %q, "sandbox": %q}]}`, os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS"))
		return err
	case "CHECK":
		_, err := os.Stat(file)
		return err
	case "DEL":
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	case "VERSION":
		_, err := fmt.Print(`{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}`)
		return err
	}
	return nil
}
