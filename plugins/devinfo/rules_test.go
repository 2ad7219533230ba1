package devinfo_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

// Each rule of ../../testdata/rules.txtar says what every verb makes of one situation: what ADD refuses, DEL must end, and
// STATUS must report if it concerns the node or the network. Each verb finds the situation as the rule's steps leave it.
func TestEveryVerbKnowsEveryRule(t *testing.T) {
	archive := txtar.Parse([]byte(difftest.Read(t, "../../testdata/rules.txtar")))
	common, rest := rule(archive.Files)
	for n := 1; len(rest) > 0; n++ {
		title, _ := strings.CutPrefix(rest[0].Name, "RULE ")
		want := string(rest[0].Data)
		var steps []step
		steps, rest = rule(rest[1:])
		t.Run(fmt.Sprint("rule", n), func(t *testing.T) {
			t.Parallel()
			linktest.Run(t, func(t *testing.T) {
				w := newWorld(t)
				w.play(common)
				setup := difftest.Read(t, hostFile)
				var got []string
				for _, verb := range []string{"ADD", "CHECK", "DEL", "GC", "STATUS", "sweep"} {
					w.clear(setup)
					call := w.play(steps)
					call.verb = verb
					got = append(got, verb+" "+w.outcome(call))
				}
				difftest.Same(t, title, strings.Join(got, ", ")+"\n", want)
			})
		})
	}
}

// rule returns the steps before the next rule, and the sections from it on.
func rule(sections []txtar.File) (steps []step, rest []txtar.File) {
	for len(sections) > 0 && !strings.HasPrefix(sections[0].Name, "RULE ") {
		var s step
		s, sections = next(sections)
		steps = append(steps, s)
	}
	return steps, sections
}

// play takes steps and returns the CALL among them, which is the call of each verb.
func (w *world) play(steps []step) (call step) {
	for _, s := range steps {
		if s.verb == "CALL" {
			call = s
		} else if got := w.do(s); s.verb == "ADD" && code(got) != code(s.mods) {
			w.t.Fatalf("the rule's own ADD: %s", got)
		}
	}
	return call
}

func (w *world) clear(host string) {
	for _, mount := range []string{"leases/device", "leases", "libcni"} {
		_ = unix.Unmount(filepath.Join(stateDir, mount), 0)
	}
	for _, path := range []string{stateDir, infoDir, cdiDir, "/run/above", "/var/lib/cni/devinfo"} {
		w.remove(path)
	}
	difftest.Write(w.t, nodeFile, defaultNode, 0o644)
	difftest.Write(w.t, hostFile, host, 0o644)
	clear(w.cache)
}

// code returns the code in the sections of a call; 0 = success.
func code(got sections) string {
	for _, s := range got {
		if s.Name == "error" {
			first, _, _ := strings.Cut(string(s.Data), "\n")
			return strings.TrimPrefix(first, "code ")
		}
	}
	return "0"
}

// outcome returns the code of the verb's error, or 0. It adds "runs" if a delegate's DEL ran, and "kept" if the journal
// keeps an entry of the attachment.
func (w *world) outcome(call step) string {
	result := ""
	if call.verb == "sweep" {
		node, err := config.LoadNode(nodeFile)
		if err == nil {
			c := cleanup.New(node, discovery.Finder{}, "boot-0", slog.New(slog.NewTextHandler(io.Discard, nil)))
			_, err = c.CollectStale(w.t.Context(), false, func(context.Context) {})
		}
		if result = "0"; err != nil {
			result = fmt.Sprint(failure.Code(err))
		}
	} else {
		got := w.do(call)
		result = code(got)
		for _, s := range got {
			if s.Name == "children" && strings.Contains(string(s.Data), "child DEL c0ffee") {
				result += " runs"
			}
		}
	}
	node, _ := config.LoadNode(nodeFile)
	j := journal.Open(node.StateDir, "")
	j.Show = true // also what others can write
	keys, err := j.All()
	check(w.t, err)
	for _, k := range keys {
		if k.ContainerID == "c0ffee" {
			result += " kept"
		}
	}
	return result
}
