// Report reads the output of "go test -json". It prints the packages, the output of failed tests, and at the end the
// number of skipped tests with the reasons.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	r := &report{output: map[string]*strings.Builder{}, skipped: map[string][]string{}}
	if err := r.read(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	r.summary(os.Stdout)
	if r.bad || r.passed == 0 {
		os.Exit(1)
	}
}

// event is one line (go doc test2json).
type event struct{ Action, Package, Test, Output string }

type report struct {
	passed, failed int
	bad            bool                        // a test or a build failed
	output         map[string]*strings.Builder // output of running tests
	skipped        map[string][]string         // tests by reason
}

func (r *report) read(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				e = event{Output: string(line)} // output of the go command itself
			}
			r.take(e, out)
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (r *report) take(e event, out io.Writer) {
	if e.Test == "" {
		switch {
		case e.Action == "fail" || e.Action == "build-fail":
			r.bad = true
		case e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]"):
			io.WriteString(out, e.Output)
		}
		return
	}
	name := e.Package + " " + e.Test
	if r.output[name] == nil {
		r.output[name] = new(strings.Builder)
	}
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			r.output[name].WriteString(e.Output)
		}
		return
	case "pass":
		r.passed++
	case "skip":
		why := reason(r.output[name].String())
		r.skipped[why] = append(r.skipped[why], e.Test)
	case "fail":
		r.failed, r.bad = r.failed+1, true
		io.WriteString(out, r.output[name].String())
	default:
		return
	}
	delete(r.output, name)
}

// reason returns the last line that a test printed before it was skipped.
func reason(output string) string {
	why := "no reason given"
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "--- ") {
			why = line
		}
	}
	if _, text, ok := strings.Cut(why, ".go:"); ok {
		_, why, _ = strings.Cut(text, ": ")
	}
	return why
}

func (r *report) summary(out io.Writer) {
	skips := 0
	for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
		tests := r.skipped[why]
		skips += len(tests)
		fmt.Fprintf(out, "skipped %d: %s (%s)\n", len(tests), why, some(tests))
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, skips)
	for name, text := range r.output {
		if text.Len() > 0 && r.bad {
			fmt.Fprintf(out, "did not end: %s\n%s", name, text)
		}
	}
}

func some(tests []string) string {
	if len(tests) > 3 {
		return strings.Join(tests[:3], ", ") + ", …"
	}
	return strings.Join(tests, ", ")
}
