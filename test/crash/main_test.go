// Package crash_test runs the devinfo binary and injects a fault (package inject) at every system call that changes the
// file system: the program is killed, or the call fails. It does so for ADD, DEL and GC of each kind of attachment.
// Afterwards it repeats the calls of a runtime. No file may remain or be incomplete, and other attachments must keep
// their state.
//
// It also stops each verb, and devinfoctl gc, at every system call that reads or changes shared state. Meanwhile an
// actor runs: a runtime that deletes the attachment and adds it again, a second runtime, another pod, a GC, or a claim
// of the device. The actor runs to its end, or until it waits for a lock of the stopped program, which then continues
// (interleave_test.go). A living attachment must be complete, and a deleted one must not leave state. Two holders must
// not have the same device (holders_test.go).
//
// The environment variable DEVINFO_CRASH selects the trials: "all" (make test-crash), "sample" (one or two minutes,
// chosen by the seed in DEVINFO_CRASH_SEED or a random one), or a text in the names of trials, such as "ADD, EIO at 7,
// GC", as a failure prints it. By default there is one fixed trial of each verb and fault, and of each verb and actor.
//
// power_test.go simulates power failures. load_test.go runs many attachments with many workers (make test-load).
package crash_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"devinfo-cni.io/test/undertest"
)

const (
	extent   = "DEVINFO_CRASH"
	seedKey  = "DEVINFO_CRASH_SEED"
	toolKey  = "DEVINFO_CRASH_DEVINFOCTL" // path of its executable
	tallyKey = "DEVINFO_CRASH_TALLY"      // file to which the tests' processes write their scores
)

func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	switch name {
	case marker:
		answer(mark())
	case claimant:
		answer(hold(os.Args[1]))
	default:
		os.Exit(undertest.Main(func(dir string) int { return run(m, dir) }))
	}
}

func run(m *testing.M, dir string) int {
	if os.Getenv(tallyKey) != "" { // linktest starts this program again for each test
		return m.Run()
	}
	tally := filepath.Join(dir, "tally")
	os.Setenv(tallyKey, tally)
	chosen := os.Getenv(extent) == "sample" || os.Getenv(attachmentsKey) != ""
	if n := os.Getenv(seedKey); chosen && (n == "" || n == "0") {
		os.Setenv(seedKey, strconv.FormatUint(rand.Uint64(), 10))
	}
	code := m.Run()
	if lines, err := os.ReadFile(tally); err == nil && (chosen || os.Getenv(extent) != "") {
		fmt.Print(strings.Join(slices.Sorted(strings.Lines(string(lines))), ""))
		if chosen {
			fmt.Println("the same again: the same make, with SEED=" + os.Getenv(seedKey))
		}
	}
	return code
}

var builtTool sync.Once

// buildTool builds devinfoctl once for the processes that tests start.
func buildTool(t *testing.T) {
	t.Helper()
	builtTool.Do(func() {
		if os.Getenv(toolKey) != "" {
			return
		}
		binary := filepath.Join(filepath.Dir(os.Getenv(tallyKey)), "devinfoctl")
		undertest.Programs(t, binary, "", "devinfo-cni.io/cmd/devinfoctl")
		os.Setenv(toolKey, binary)
	})
}
