package dratest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/test/difftest"
)

// Calls returns the calls of the plugin "fake".
func (r *Rig) Calls() (list []Call) {
	r.T.Helper()
	log, _ := os.ReadFile(filepath.Join(r.Dir, "calls")) // there is none before the first call
	for lines := json.NewDecoder(bytes.NewReader(log)); lines.More(); {
		var c Call
		difftest.Must(r.T, lines.Decode(&c))
		list = append(list, c)
	}
	return list
}

// CallNames returns the calls as "ADD s1 net1".
func (r *Rig) CallNames() (list []string) {
	for _, c := range r.Calls() {
		list = append(list, strings.Join([]string{c.Command, c.Sandbox, c.IfName}, " "))
	}
	return list
}

// Files returns the names of the files in a directory of the rig, without the temporary files of writers that are at work
// or were killed.
func (r *Rig) Files(dir string) []string {
	return slices.DeleteFunc(namesIn(filepath.Join(r.Dir, dir)), func(name string) bool { return strings.HasPrefix(name, ".") })
}

// namesIn returns the names in a directory, except that of a lock.
func namesIn(dir string) (names []string) {
	entries, _ := os.ReadDir(dir) // it may not exist yet
	for _, e := range entries {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// ExpectFiles checks the number of files in a directory of the rig, such as "there", which has the interfaces of the plugin
// "fake" that are processes.
func (r *Rig) ExpectFiles(dir string, n int) {
	r.T.Helper()
	if got := r.Files(dir); len(got) != n {
		r.T.Errorf("%s: got %q, want %d", dir, got, n)
	}
}

// ExpectNothing checks that the plugins and the agent have left no files, not even temporary ones.
func (r *Rig) ExpectNothing() {
	r.T.Helper()
	for _, dir := range []string{"there", "state", "cdi", "info", "dp", "cache"} {
		difftest.Same(r.T, dir, namesIn(filepath.Join(r.Dir, dir)), []string(nil))
	}
}

// ExpectPhase checks the number of attachments in a phase.
func (r *Rig) ExpectPhase(phase string, n int) {
	r.T.Helper()
	if census := r.Agent.Census(); census.Phases[phase] != n {
		r.T.Errorf("got %v, want %d %s", census, n, phase)
	}
}

// ExpectCalls checks the number of plugin calls with a prefix.
func (r *Rig) ExpectCalls(prefix string, n int) {
	r.T.Helper()
	difftest.Same(r.T, fmt.Sprintf("calls %q of %q", prefix, r.CallNames()), r.Plugins.Calls(prefix), n)
}

// Record returns the record of a claim.
func (r *Rig) Record(uid string) state.Claim {
	r.T.Helper()
	var record state.Claim
	difftest.Must(r.T, json.Unmarshal([]byte(difftest.Read(r.T, filepath.Join(r.Options.StateDir, uid+".json"))), &record))
	return record
}

// ExpectHolders checks that a device has exactly these holders.
func (r *Rig) ExpectHolders(id string, holders ...string) {
	r.T.Helper()
	all, err := r.Options.Devices.Journal.Holders(journal.OfDevice, id)
	difftest.Must(r.T, err)
	var names []string
	for _, h := range all {
		names = append(names, h.Name())
	}
	difftest.Same(r.T, "holders of "+id, names, holders)
}
