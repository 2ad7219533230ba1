package plugin_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/link/linktest"
)

var update = flag.Bool("update", false, "rewrite what the stories expect; then read the difference with care")

// storyUpdate passes -update on to the process that has its own namespaces.
const storyUpdate = "DEVINFO_STORY_UPDATE"

const storyDir = "../../testdata/stories"

// Each story runs the plugin as a process, on a captured host, in namespaces of
// its own: see testdata/stories/README.md.
func TestStories(t *testing.T) {
	if *update {
		t.Setenv(storyUpdate, "1")
	}
	files, err := filepath.Glob(filepath.Join(storyDir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			if !*update {
				t.Parallel()
			}
			linktest.Run(t, func(t *testing.T) { play(t, file) })
		})
	}
}

// A story is a comment and steps. A step is a section whose name begins with a
// capital letter; what comes after it, up to the next, is what is expected of it.
type story struct {
	comment []byte
	steps   []step
}

type step struct {
	verb string
	args []string
	body string
	mods []txtar.File // of HOST
	want []txtar.File
}

// parseStory reads a story; the error says what is wrong with its form.
func parseStory(data []byte) (*story, error) {
	archive := txtar.Parse(data)
	s := &story{comment: archive.Comment}
	if len(strings.TrimSpace(string(s.comment))) == 0 {
		return nil, errors.New("the comment must say the rule")
	}
	for _, f := range archive.Files {
		words := strings.Fields(f.Name)
		switch {
		case len(words) == 0:
			return nil, errors.New("a section without name")
		case unicode.IsUpper(rune(f.Name[0])):
			s.steps = append(s.steps, step{verb: words[0], args: words[1:], body: string(f.Data)})
			continue
		case len(s.steps) == 0:
			return nil, fmt.Errorf("section %q is before the first step", f.Name)
		}
		last := &s.steps[len(s.steps)-1]
		if last.verb == "HOST" {
			last.mods = append(last.mods, f)
		} else {
			last.want = append(last.want, f)
		}
	}
	return s, nil
}

func (s *story) format() []byte {
	archive := &txtar.Archive{Comment: s.comment}
	for _, st := range s.steps {
		name := strings.Join(append([]string{st.verb}, st.args...), " ")
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: []byte(st.body)})
		archive.Files = append(archive.Files, st.mods...)
		archive.Files = append(archive.Files, st.want...)
	}
	return txtar.Format(archive)
}

func play(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	check(t, err)
	s, err := parseStory(data)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	w := newWorld(t)
	rewrite := os.Getenv(storyUpdate) != ""
	for n := range s.steps {
		st := &s.steps[n]
		got, err := w.do(*st)
		if err != nil {
			t.Fatalf("step %d, %s: %v", n+1, st.verb, err)
		}
		if rewrite {
			st.want = got
		} else {
			compare(t, fmt.Sprintf("step %d, %s", n+1, strings.Join(append([]string{st.verb}, st.args...), " ")), st.want, got)
		}
	}
	if rewrite {
		check(t, os.WriteFile(file, s.format(), 0o644))
	}
}

// compare asks for equality of all sections: what a story does not expect must
// not happen.
func compare(t *testing.T, where string, want, got []txtar.File) {
	t.Helper()
	find := func(list []txtar.File, name string) (string, bool) {
		n := slices.IndexFunc(list, func(f txtar.File) bool { return f.Name == name })
		if n < 0 {
			return "(nothing)\n", false
		}
		return string(list[n].Data), true
	}
	for _, f := range got {
		if text, _ := find(want, f.Name); text != string(f.Data) {
			t.Errorf("%s: %s: got\n%swant\n%s", where, f.Name, f.Data, text)
		}
	}
	for _, f := range want {
		if _, there := find(got, f.Name); !there {
			t.Errorf("%s: %s: got nothing, want\n%s", where, f.Name, f.Data)
		}
	}
}
