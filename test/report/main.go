// Report reads the output of "go test -json". It prints the packages, the output of failed tests, and at the end the
// number of skipped tests with the reasons.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is one line (go doc test2json).
type event struct{ Action, Package, Test, Output string }

func main() {
	passed, failed, skips, bad := 0, 0, 0, false
	running, skipped := map[string]string{}, map[string][]string{} // output by test; tests by reason
	in := bufio.NewReader(os.Stdin)
	for line, _ := in.ReadString('\n'); line != ""; line, _ = in.ReadString('\n') {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			e = event{Output: line} // output of the go command itself
		}
		name := e.Package + " " + e.Test
		switch {
		case e.Test == "" && (e.Action == "fail" || e.Action == "build-fail"):
			bad = true
		case e.Test == "" && e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]"):
			fmt.Print(e.Output)
		case e.Test == "" || strings.HasPrefix(e.Output, "=== "):
		case e.Action == "output" || e.Action == "run":
			running[name] += e.Output
			continue
		case e.Action == "pass":
			passed++
		case e.Action == "skip":
			why := reason(running[name])
			skipped[why], skips = append(skipped[why], e.Test), skips+1
		case e.Action == "fail":
			fmt.Print(running[name])
			failed, bad = failed+1, true
		}
		if e.Action == "pass" || e.Action == "skip" || e.Action == "fail" {
			delete(running, name)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		tests := skipped[why]
		some := strings.Join(tests[:min(len(tests), 3)], ", ") + map[bool]string{true: ", …"}[len(tests) > 3]
		fmt.Printf("skipped %d: %s (%s)\n", len(tests), why, some)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, skips)
	for name, text := range running {
		if text != "" && bad {
			fmt.Printf("did not end: %s\n%s", name, text)
		}
	}
	if bad || passed == 0 {
		os.Exit(1)
	}
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
