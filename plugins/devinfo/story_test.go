package devinfo_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// storyUpdate passes the flag -update to the process with its own namespaces.
const storyUpdate = "DEVINFO_STORY_UPDATE"

// Each story runs the plugin as a process, on a captured host and in its own namespaces, see
// testdata/stories/README.md.
func TestStories(t *testing.T) {
	plays := os.Getenv(storyUpdate) != ""
	if *goldentest.Update {
		must(os.Setenv(storyUpdate, "1"))
	}
	*goldentest.Update = plays // only the process that plays a story updates it
	goldentest.Archives(t, "../../testdata/stories/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		t.Parallel()
		linktest.Run(t, func(t *testing.T) { play(t, archive) })
	})
}

// A step is a section whose name begins with a capital letter.
type step struct {
	verb string
	args []string
	body string
	mods []txtar.File // the sections up to the next step: changes for HOST, else expectations
}

func begins(section txtar.File) bool { return unicode.IsUpper(rune(section.Name[0])) }

// next returns the step that the sections begin with, and the sections after it.
func next(list []txtar.File) (step, []txtar.File) {
	end := 1
	for end < len(list) && !begins(list[end]) {
		end++
	}
	words := strings.Fields(list[0].Name)
	return step{words[0], words[1:], string(list[0].Data), list[1:end]}, list[end:]
}

func play(t *testing.T, archive *txtar.Archive) {
	if len(bytes.TrimSpace(archive.Comment)) == 0 || len(archive.Files) == 0 || !begins(archive.Files[0]) {
		t.Fatal("a story begins with a comment that gives the rule, and a step")
	}
	w, at := newWorld(t), ""
	defer func() {
		if t.Failed() {
			t.Log("the last step was", at)
		}
	}()
	var played []txtar.File
	for rest := archive.Files; len(rest) > 0; {
		head := rest[0]
		at = head.Name
		var s step
		s, rest = next(rest)
		got := w.do(s)
		if s.verb == "HOST" {
			got = s.mods
		}
		if !*goldentest.Update {
			difftest.Same(t, fmt.Sprintf("section %d, %s", len(played)+1, head.Name), texts(got), texts(s.mods))
			if result := w.cache[attachment(s)]; s.verb == "ADD" && result != "" {
				w.repeat(s, result, got.has("children"))
			}
		}
		played = append(append(played, head), got...)
	}
	archive.Files = played
}

// repeat calls ADD again, which prints the same result and changes nothing, and then CHECK, which agrees with it. If delegates
// have made a network, ADD is refused.
func (w *world) repeat(s step, result string, delegates bool) {
	only := func(got sections, names ...string) {
		for _, section := range got {
			if !slices.Contains(names, section.Name) {
				w.t.Errorf("ADD again, or CHECK, has the section %s\n%s", section.Name, section.Data)
			}
		}
	}
	if got := w.do(s); delegates && code(got) == "7" {
		only(got, "stderr", "error")
	} else {
		only(got, "stderr", "stdout")
		difftest.Same(w.t, "result of ADD again", w.cache[attachment(s)], result)
	}
	w.cache[attachment(s)] = result
	s.verb = "CHECK"
	if got := w.do(s); code(got) != "1" && !strings.Contains(w.stdin(s), `"CHECK"`) { // the version has CHECK, and no delegate is to fail
		only(got, "stderr", "children")
	}
}

// texts returns the sections in sorted order.
func texts(sections []txtar.File) (list []string) {
	for _, s := range sections {
		list = append(list, s.Name+"\n"+string(s.Data))
	}
	slices.Sort(list)
	return list
}
