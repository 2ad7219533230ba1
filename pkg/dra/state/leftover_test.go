package state_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/dra/state"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// abandoned is of a claim whose pod was detached in vain.
func abandoned() *state.Claim {
	c := full("u1")
	c.Abandoned, c.Attachments = c.Attachments[:1], nil
	at := &c.Abandoned[0]
	at.Phase, at.Tries, at.DelError, at.GivenUp = state.Abandoned, 5, "no master", metav1.NewTime(noon)
	at.Args = [][2]string{{"K8S_POD_NAMESPACE", "ns"}, {"K8S_POD_NAME", "pod"}, {"K8S_POD_UID", "p1"}}
	at.Info = json.RawMessage(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:01:00.2"}}`)
	return c
}

func TestWhatWasGivenUpIsListedWhileTheAgentRuns(t *testing.T) {
	s, dir := open(t)
	put(t, s, abandoned())
	put(t, s, full("u2"))
	got, err := state.Leftovers(dir)
	must(t, err)
	for n := range got {
		got[n].Since = got[n].Since.UTC()
	}
	want := []state.Leftover{{
		Claim: "ns/claim", ClaimUID: "u1", Pod: "ns/pod", PodUID: "p1", Request: "a/first", Network: "net", IfName: "net1", Sandbox: "s1",
		Device: "node/cni", PCI: "0000:01:00.2", Error: "no master", Tries: 5, Since: noon,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAFileThatMakesNoSenseHidesNoOtherAndStays(t *testing.T) {
	s, dir := open(t)
	put(t, s, abandoned())
	path := filepath.Join(dir, "torn.json")
	write(t, path, "{")
	got, err := state.Leftovers(dir)
	var corrupt *store.CorruptError
	if len(got) != 1 || !errors.As(err, &corrupt) || corrupt.Path != path {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestADirectoryThatIsMissingHasNoLeftovers(t *testing.T) {
	if got, err := state.Leftovers(filepath.Join(t.TempDir(), "none")); got != nil || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}
