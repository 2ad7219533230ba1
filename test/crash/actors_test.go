package crash_test

import (
	"encoding/json"
	"os"

	"devinfo-cni.io/test/crash/inject"
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
	elsewhere = attachment{ours.container, ours.ifName, otherNetns}
	departed  = attachment{ours.container, ours.ifName, "/run/netns/departed"}
)

const devinfoctl = "devinfoctl gc"

// A step is one call of a program in a part.
type step struct {
	verb string
	of   attachment // empty for GC and claims
	all  bool       // GC with an empty list of valid attachments
	program
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
	return step{verb: "ADD", of: a, program: s.command("ADD", a, s.conf(a))}
}

func (s *stage) del(a attachment) step {
	return step{verb: "DEL", of: a, program: s.command("DEL", a, s.conf(a))}
}

// check returns the CHECK of an attachment that an ADD made.
func (s *stage) check(added act) step {
	c := s.conf(added.of).with(conf{"prevResult": json.RawMessage(added.stdout)})
	return step{verb: "CHECK", of: added.of, program: s.command("CHECK", added.of, c)}
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
	return step{verb: "GC", program: s.command("GC", ours, c)}
}

func (s *stage) gcOfAll() step {
	return step{verb: "GC", all: true, program: s.command("GC", ours, s.conf(ours).gc())}
}

func (s *stage) tool() step {
	return step{verb: devinfoctl, program: program{
		path: os.Getenv(toolKey), args: []string{"gc", "--yes", "--node-config", nodeFile, "--cni-path", s.cniPath},
		env: []string{"PATH=" + os.Getenv("PATH")},
	}}
}

func (s *stage) claim() step {
	return step{verb: claimant, program: program{path: claimantPath, args: []string{s.device}}}
}

// An act is a step that was run, with its start and end.
type act struct {
	step
	outcome
	began, ended int
	broken       error // error of the test, or of a program that hangs
}

// run runs a step.
func (s *stage) run(where *seat, st step, decide func(inject.Call) inject.Verdict) act {
	a := act{step: st, began: s.tick()}
	if a.outcome, a.broken = where.run(st.program, decide); a.broken != nil {
		a.exit = -1
	}
	a.ended = s.tick()
	return a
}
