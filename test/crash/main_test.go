// Package crash_test runs the devinfo binary and has it killed, or lied to by the disk,
// at every system call that changes the file system (package inject): in ADD, DEL and
// GC of each kind of attachment. Then the runtime does what runtimes do, and nothing
// may be left, torn, or lost of other attachments.
//
// It also stops each verb, and devinfoctl gc, at every system call that reads or changes
// what attachments share, while an actor runs to its end, or until it waits for a lock of
// the stopped one: a runtime that deletes the attachment, and adds it again, here or
// elsewhere; a second runtime, another pod, a GC, a claim on the device. Then the stopped one
// goes on, and nothing may be lost of an attachment that lives, half there of one that was
// deleted while it was added, or left after the last DEL (interleave_test.go); and no two
// may have one device (holders_test.go).
//
// The environment variable DEVINFO_CRASH says how much is tried: "all" (make test-crash),
// "sample" (a minute or two, by the seed DEVINFO_CRASH_SEED, or a random one),
// or only the trials whose names hold a text, such as "ADD, EIO at 7, GC", which is how a
// failure gives it. Without it there is one trial of each verb and fault, and of each verb
// and actor, always the same.
//
// What a power failure leaves is in power_test.go. Many attachments by many workers, killed and
// collected at random (make test-load), are in load_test.go.
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
	toolKey  = "DEVINFO_CRASH_DEVINFOCTL" // its executable
	tallyKey = "DEVINFO_CRASH_TALLY"      // a file to which tests, in processes of their own, write what survived
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

// buildTool builds devinfoctl, once, for the processes that tests start.
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
