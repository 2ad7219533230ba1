package kernel_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/link/linktest"
)

// budgets are the system calls of a chained call about a VF, by name. They are what the
// plugin asks of files and sockets: how often a Go program asks for memory, waits or looks
// at its clock is not the same twice. The state directories are there already, as on every
// node after its first ADD.
//
// A call more is noticed here; so is one less, that the figure goes on meaning something.
var budgets = map[string]string{
	"ADD": "",
	"DEL": "",
}

func TestChainedCallsKeepToTheirBudgets(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed: apt-get install strace")
	}
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		conf := chained(pod, `"deviceID": "`+vf+`",`)
		for _, verb := range []string{"ADD", "DEL"} {
			call(t, verb, pod, conf).ok(t)
		}
		for _, verb := range []string{"ADD", "DEL"} {
			trace := t.TempDir() + "/trace"
			cmd := devinfo(verb, pod, conf)
			cmd.Args = []string{strace, "-f", "-qq", "-e", "signal=none", "-e", "trace=%file,%desc,%network,setns", "-o", trace, cmd.Path}
			cmd.Path = strace
			finish(t, cmd).ok(t)
			text := read(t, trace)
			if keep := os.Getenv("DEVINFO_TRACES"); keep != "" {
				if err := os.WriteFile(keep+"/"+verb, []byte(text), 0o644); err != nil {
					t.Error(err)
				}
			}
			if got := counted(text); got != budgets[verb] {
				t.Errorf("%s makes the calls\n%s\nits budget is\n%s\nDEVINFO_TRACES=DIRECTORY keeps the traces", verb, got, budgets[verb])
			}
		}
	})
}

// counted counts the calls of a trace after the Go runtime's own, which end with the first
// look at standard input. Those by which goroutines wait are left out.
func counted(trace string) string {
	counts := map[string]int{}
	for line := range strings.Lines(trace) {
		m := made.FindStringSubmatch(line)
		if m == nil || strings.HasPrefix(m[2], "epoll_") || m[2] == "mmap" || m[2] == "eventfd2" || m[2] == "execve" {
			continue
		}
		counts[m[2]]++
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprint(name, " ", counts[name]))
	}
	return strings.Join(words, ", ")
}
