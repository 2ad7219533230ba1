// Package crash_test runs the devinfo binary and has it killed, or lied to by the disk,
// at every system call that changes the file system (package inject): in ADD, DEL and
// GC of each kind of attachment. Then the runtime does what runtimes do, and nothing
// may be left, torn, or lost of other attachments.
//
// The environment variable DEVINFO_CRASH says how much is tried: "all" (make crash),
// "sample" (less than a minute's worth, by the seed DEVINFO_CRASH_SEED, or a random one),
// or only the trials whose names hold a text, such as "ADD, EIO at 7, GC", which is how a
// failure gives it. Without it there is one trial of each verb and fault, always the same.
//
// What a power failure leaves is in power_test.go.
package crash_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"devinfo-cni.io/test/undertest"
)

const (
	extent   = "DEVINFO_CRASH"
	seedKey  = "DEVINFO_CRASH_SEED"
	tallyKey = "DEVINFO_CRASH_TALLY" // a file to which tests, in processes of their own, write their tallies
)

func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	switch standIn, ok := standIns[name]; {
	case name == marker:
		answer(mark())
	case ok:
		answer(standIn.run())
	default:
		os.Exit(run(m))
	}
}

func run(m *testing.M) int {
	if os.Getenv(undertest.Key) != "" && os.Getenv(tallyKey) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "devinfo-crash-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := undertest.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	tallies := filepath.Join(dir, "tallies")
	os.Setenv(tallyKey, tallies)
	if n := os.Getenv(seedKey); os.Getenv(extent) == "sample" && (n == "" || n == "0") {
		os.Setenv(seedKey, strconv.FormatUint(rand.Uint64(), 10))
	}
	code := m.Run()
	if table := tables(tallies); table != "" && os.Getenv(extent) != "" {
		fmt.Print(table)
		if os.Getenv(extent) == "sample" {
			fmt.Println("the same again: make crash CRASH=sample SEED=" + os.Getenv(seedKey))
		}
	}
	return code
}
