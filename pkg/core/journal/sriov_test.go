package journal_test

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/test/difftest"
)

func TestLockedBySRIOVReturnsLiveLocks(t *testing.T) {
	files := fstest.MapFS{
		"0000:01:10.0": {Data: []byte("/var/run/netns/a\n")}, "0000:01:10.2": {Data: []byte("/var/run/netns/gone")},
		"notes": {Data: []byte("/var/run/netns/a")}, "0000:01:10.4": {Mode: fs.ModeDir},
	}
	var failing string
	var failure error
	locked := func() (map[string]string, error) {
		dir := capturetest.Tree{FS: files, BeforeCall: func(name string) error {
			if name == failing {
				return failure
			}
			return nil
		}}
		return journal.LockedBySRIOV(dir, func(netns string) (bool, error) { return strings.HasSuffix(netns, "gone"), nil })
	}
	got, err := locked()
	must(t, err)
	difftest.Equal(t, got, map[string]string{"0000:01:10.0": "sriov-cni has allocated it to network namespace /var/run/netns/a"})
	failure = fs.ErrNotExist
	for _, failing = range []string{".", "0000:01:10.0"} { // sriov-cni is not installed, or removes a lock
		got, err := locked()
		must(t, err)
		difftest.Equal(t, got, map[string]string{})
	}
	failure = syscall.EIO
	_, err = locked()
	difftest.Is(t, err, syscall.EIO)
}
