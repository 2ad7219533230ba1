package validate_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/ctl/validate"
)

var update = flag.Bool("update", false, "rewrite what the cases expect; then read the difference with care")

// checker knows a node with three plugins.
var checker = validate.Checker{Find: func(name string) error {
	if slices.Contains([]string{"bridge", "macvlan", "host-device"}, name) {
		return nil
	}
	return fmt.Errorf("there is no %s", name)
}, Versions: func(plugin string) []string {
	if plugin == "bridge" {
		return []string{"0.4.0", "1.0.0"}
	}
	return nil // not known
}}

// Each file holds texts, every one followed by all that is to be found in it.
func TestFindingsAreTheseAndNoOthers(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 3 {
		t.Fatalf("cases: %q, %v", files, err)
	}
	for _, name := range files {
		archive, err := txtar.ParseFile(name)
		must(t, err)
		for n := 0; n+1 < len(archive.Files); n += 2 {
			in, want := archive.Files[n], &archive.Files[n+1]
			report, err := checker.Check(in.Data, "")
			got := lines(report, err)
			if *update {
				want.Name, want.Data = "finds", []byte(got)
			} else if want.Name != "finds" {
				t.Fatalf("%s: %s is not followed by what it finds", name, in.Name)
			} else if diff := cmp.Diff(string(want.Data), got); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, in.Name, diff)
			}
		}
		if *update {
			must(t, os.WriteFile(name, txtar.Format(archive), 0o644))
		}
	}
}

func lines(r *validate.Report, err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	if r.Kind != "" {
		fmt.Fprintf(&b, "%s: %s\n", r.Kind, r.Guessed)
	}
	if r.Skipped != "" {
		fmt.Fprintf(&b, "not checked: %s\n", r.Skipped)
	}
	for _, f := range r.Findings {
		level := "error"
		if f.Warning {
			level = "warning"
		}
		fmt.Fprintf(&b, "%d:%d %s %s: %s: %s\n", f.Line, f.Column, level, f.Path, f.Value, f.Rule)
	}
	return b.String()
}

// examples are the files of the specification's.
func examples(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../../devinfo/testdata/npwg/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	return files
}

// The specification's own examples have nothing wrong in them.
func TestSpecificationsExamplesAreValid(t *testing.T) {
	for _, name := range examples(t) {
		text, err := os.ReadFile(name)
		must(t, err)
		want := &validate.Report{Kind: validate.DeviceInfo, Findings: []validate.Finding{}}
		r, err := checker.Check(text, validate.DeviceInfo)
		if diff := cmp.Diff(want, r); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

// Whatever is handed in: an answer, of values that a terminal can show, and no
// longer than a message may be.
func FuzzCheck(f *testing.F) {
	for _, name := range []string{"testdata/config.txtar", "testdata/status.txtar", "testdata/syntax.txtar", "testdata/dra.txtar"} {
		archive, err := txtar.ParseFile(name)
		must(f, err)
		for _, file := range archive.Files {
			f.Add(file.Data, byte(len(f.Name())))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, kind byte) {
		kinds := append([]validate.Kind{""}, validate.Kinds...)
		r, err := checker.Check(text, kinds[int(kind)%len(kinds)])
		if err != nil {
			return
		}
		all, err := checker.CheckAll(text, r.Kind)
		if err != nil || len(all) == 0 {
			t.Errorf("as many documents: %v, %v", all, err)
		}
		for _, d := range all {
			r.Findings = append(r.Findings, d.Findings...)
		}
		for _, finding := range r.Findings {
			if strings.ContainsAny(finding.Value, "\x1b\n\x00") || len([]rune(finding.Value)) > 130 || finding.Path == "" || finding.Rule == "" {
				t.Errorf("%+v", finding)
			}
		}
	})
}
