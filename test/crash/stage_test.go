package crash_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"devinfo-cni.io/test/crash/inject"
)

// A stage is a world in which two programs run at the same time.
type stage struct {
	*world
	kind
	first, second *seat
	owns          map[string]snapshot // state of an attachment, by container
	earlier       []act               // steps that ran before the two programs started
	clock         atomic.Int64
}

// newStage prepares a world for attachments of a kind.
func newStage(w *world, k kind) *stage {
	t := w.t
	t.Helper()
	s := &stage{
		world: w, kind: k, owns: map[string]snapshot{},
		first: newSeat(t, inject.Changes|inject.Reads|inject.Locks), second: newSeat(t, inject.Locks),
	}
	s.program(claimant)
	for _, b := range bystanders()[:2] { // one with a device, one with a socket
		s.must("ADD", b.attachment, b.conf)
	}
	for range 2 { // the first round also creates files that stay
		s.base = take(t)
		for _, a := range []attachment{ours, neighbour} {
			s.must("ADD", a, k.conf(a))
			s.owns[a.container] = take(t).beyond(s.base)
			s.must("DEL", a, k.conf(a))
		}
		s.fine(hold(k.device))
		s.fine(release(k.device))
		s.must("GC", ours, k.conf(ours))
	}
	s.base = take(t)
	return s
}

// answer prints the error of a test's plugin and exits.
func answer(err error) {
	if err != nil {
		fmt.Printf(`{"cniVersion": "1.1.0", "code": 5, "msg": %q}`, err)
		os.Exit(1)
	}
}

// The plugin marker creates a file for each attachment at the end of its ADD. It is a delegate. If the DEL of its
// caller did not wait for a running ADD, the file would remain.
const (
	marker  = "marker"
	markDir = "/run/marks"
)

// mark is the plugin marker.
func mark() error {
	file := filepath.Join(markDir, os.Getenv("CNI_CONTAINERID")+"_"+os.Getenv("CNI_IFNAME"))
	switch os.Getenv("CNI_COMMAND") {
	case "ADD":
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			return err
		}
		_, err := fmt.Printf(`{"cniVersion": "1.1.0", "interfaces": [{"name": %q, "sandbox": %q}]}`, os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS"))
		return err
	case "CHECK":
		_, err := os.Stat(file)
		return err
	case "DEL":
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	case "VERSION":
		_, err := fmt.Print(`{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}`)
		return err
	}
	return nil
}
