package state_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

func TestMethodsFollowFromFields(t *testing.T) {
	difftest.Same(t, "unprepared and owes, without attachments", []bool{new(state.Claim).Unprepared(), new(state.Claim).Owes()}, []bool{false, false})
	share, info := "s", json.RawMessage(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:01:00.2"}}`)
	for want, a := range map[string]state.Attachment{
		`part "", bare, exclusive, pci 0000:01:00.2`: {Device: "d", List: json.RawMessage("null"), Phase: state.Prepared, Execution: state.Execution{Info: info, BootID: "b"}},
		`part "", bare, exclusive`:                   {Device: "d", Phase: state.Prepared},
		`part "d", exclusive, owes, netns`:           {Device: "d", List: json.RawMessage("{}"), Phase: state.Adding, Execution: state.Execution{BootID: "b", Info: json.RawMessage(`{"type": "memif"}`)}},
		`part "d=net1", owes, netns`:                 {Device: "d", IfName: "net1", ShareID: &share, List: json.RawMessage("{}"), Phase: state.Added, Execution: state.Execution{BootID: "b", Tries: 1, DelError: "e"}},
		`part "d", exclusive, owes, netns, withheld`: {Device: "d", List: json.RawMessage("{}"), Phase: state.Deleting, Execution: state.Execution{BootID: "b", Tries: 1, DelError: "e"}},
		`part "d", exclusive, owes`:                  {Device: "d", List: json.RawMessage("{}"), Phase: state.Deleting, Execution: state.Execution{BootID: "older", Tries: 1}},
		`part "e", exclusive, owes`:                  {Device: "e", List: json.RawMessage("{}"), Phase: state.Restoring, Execution: state.Execution{BootID: "b", DelError: "e"}},
		`part "f", exclusive, owes`:                  {Device: "f", List: json.RawMessage("{}"), Phase: state.Undeleted, Execution: state.Execution{BootID: "b", Tries: 1, DelError: "e", Lost: true}},
	} {
		got := fmt.Sprintf("part %q", a.Part())
		for _, word := range []struct {
			is   bool
			text string
		}{{a.Bare(), "bare"}, {a.Exclusive(), "exclusive"}, {a.Owes(), "owes"}, {a.HasNetns("b"), "netns"}, {a.Withheld(), "withheld"}, {a.PCI() != "", "pci " + a.PCI()}} {
			if word.is {
				got += ", " + word.text
			}
		}
		difftest.Equal(t, got, want)
		c := state.Claim{Undeleted: []state.Attachment{a}}
		difftest.Same(t, want+": unprepared and owes as undeleted", []bool{c.Unprepared(), c.Owes()}, []bool{true, false})
		c.Attachments = c.Undeleted
		difftest.Same(t, want+": unprepared and owes", []bool{c.Unprepared(), c.Owes()}, []bool{false, a.Owes()})
	}
}

func TestReadersOfJournalFindDirectoryOfLastDriver(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(state.DirVariable, "")
	difftest.Same(t, "before the first driver", state.NodeDir(dir), state.DefaultDir)
	difftest.Must(t, os.Symlink("/killed", filepath.Join(dir, "driver.new")))
	for _, last := range []string{"/a/state", "/a/state", "/b/state"} {
		difftest.Must(t, state.Announce(dir, last))
		difftest.Same(t, "the directory", state.NodeDir(dir), last)
	}
	difftest.Must(t, os.Chmod(dir, 0o500)) //nolint:gosec // as a file system that is full or read-only
	difftest.WithModes(t, func() {
		difftest.Must(t, state.Announce(dir, "/b/state"))
		difftest.Is(t, state.Announce(dir, "/c/state"), fs.ErrPermission)
	})
	difftest.Must(t, os.Chmod(dir, 0o700)) //nolint:gosec // for its removal
	t.Setenv(state.DirVariable, "/c/state")
	difftest.Same(t, "of the environment", state.NodeDir(dir), "/c/state")
}

func TestOfferIsReadAsWritten(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []*state.Offer{nil, {Rules: "/r", Devices: []state.Offered{{Name: "d", Sharing: "shared"}}}, {Problem: "p"}, nil} {
		difftest.Must(t, state.WriteOffer(dir, want))
		got, err := state.ReadOffer(dir)
		difftest.Must(t, err)
		difftest.Equal(t, got, want)
	}
	difftest.Write(t, filepath.Join(dir, state.OfferFile), "{", 0o600)
	_, err := state.ReadOffer(dir)
	difftest.As[*store.CorruptError](t, err)
}
