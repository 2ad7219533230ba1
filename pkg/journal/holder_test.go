package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
)

func TestADeviceIsHeldByOneUntilItLetsGo(t *testing.T) {
	dir := t.TempDir()
	j := journal.Open(dir, "boot")
	holder := func(device string) *journal.Holder {
		t.Helper()
		h, err := j.HolderOf(device)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	mine := journal.Holder{Key: journal.Key{Network: "net", ContainerID: "c1", IfName: "net1"}, Netns: "/run/netns/x", Pod: "ns/pod", Claim: "ns/claim"}
	if err := j.Hold("0000:3B:00.2", mine); err != nil {
		t.Fatal(err)
	}
	want := mine
	want.BootID = "boot"
	if diff := cmp.Diff(&want, holder("0000:3b:00.2")); diff != "" {
		t.Error(diff)
	}
	for _, other := range []string{"0000:3b:00.3", "mlx5_core.sf.4", "../attachments", "a/b", ""} {
		if h := holder(other); h != nil {
			t.Errorf("%q is held by %+v", other, h)
		}
	}
	other := mine.Key
	other.IfName = "net2"
	if err := j.LetGo("0000:3b:00.2", other); err != nil || holder("0000:3b:00.2") == nil {
		t.Errorf("another's: %v", err)
	}
	if h, err := journal.Open(dir, "next").HolderOf("0000:3b:00.2"); h != nil || err != nil {
		t.Errorf("after a reboot: %v, %v", h, err)
	}
	for range 2 {
		if err := j.LetGo("0000:3b:00.2", mine.Key); err != nil || holder("0000:3b:00.2") != nil {
			t.Error(err)
		}
	}
}

// Nobody has a device by a file that a power failure has torn; its DEL ends all the same.
func TestATornHolderIsLetGo(t *testing.T) {
	j, dir := open(t)
	for name, content := range map[string]string{"torn": "{", "empty": "", "zeros": "\x00\x00"} {
		must(t, j.Hold("x", journal.Holder{Key: key1}))
		must(t, os.WriteFile(filepath.Join(dir, "held", "x"), []byte(content), 0o600))
		var corrupt *store.CorruptError
		if _, err := j.HolderOf("x"); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, j.LetGo("x", key1))
		expectFiles(t, dir)
	}
}

func TestSweepRemovesWhatAKilledHoldLeft(t *testing.T) {
	j, dir := open(t)
	must(t, j.Hold("x", journal.Holder{Key: key1}))
	must(t, os.WriteFile(filepath.Join(dir, "held", ".y.tmp"), []byte("{"), 0o600))
	var removed []string
	must(t, j.Sweep(func(path string) { removed = append(removed, path) }))
	if diff := cmp.Diff([]string{"held/.y.tmp"}, removed); diff != "" {
		t.Error(diff)
	}
	expectFiles(t, dir, "held/x")
}
