package state_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/test/difftest"
)

func open(t *testing.T) (*state.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "plugins/driver/state")
	return reopen(t, dir), dir
}

func reopen(t *testing.T, dir string) *state.Store {
	t.Helper()
	s, err := state.Open(dir)
	difftest.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func full(uid string) *state.Claim {
	share := "f00"
	return &state.Claim{
		Schema: state.Schema, Namespace: "ns", Name: "claim", UID: uid, StatusOwed: true,
		Pod: state.Pod{Namespace: "ns", Name: "pod", UID: "p1"},
		Attachments: []state.Attachment{
			{Request: "a/first", Pool: "node", Device: "cni", ShareID: &share, Network: "net", CNIVersion: "1.1.0", IfName: "net1",
				List: json.RawMessage(`{"name":"net"}`), Phase: state.Added, Execution: state.Execution{
					Sandbox: "s1", Netns: "/var/run/netns/x", BootID: "b", Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", "pod"}},
					InfoFile: "/run/f", Result: json.RawMessage(`{"ips":[]}`), Info: json.RawMessage(`{"type":"pci"}`),
					Metadata: json.RawMessage(`{"attributes":{"resource.kubernetes.io/pciBusID":{"string":"0000:01:00.2"}}}`),
				}},
			{Request: "b", Pool: "node", Device: "cni", Network: "net", IfName: "net2", List: json.RawMessage(`{}`), Phase: state.Prepared, Error: "why"},
		},
	}
}

func all(t *testing.T, s *state.Store) ([]*state.Claim, []state.Problem) {
	t.Helper()
	claims, problems, err := s.All(valid)
	difftest.Must(t, err)
	return claims, problems
}

// valid refuses a record like a driver that cannot decode its parts for the Kubernetes API.
func valid(c *state.Claim) error {
	if c.Name == "undecodable" {
		return errors.New(c.Name)
	}
	return nil
}

// A driver of an earlier commit wrote testdata/record.json, with types of the Kubernetes API.
func TestFormatIsUnchanged(t *testing.T) {
	s, dir := open(t)
	want := difftest.Read(t, "testdata/record.json")
	difftest.Write(t, filepath.Join(dir, "u1.json"), want, 0o600)
	claims, problems := all(t, s)
	difftest.Same(t, "claims, and problems", []int{len(claims), len(problems)}, []int{1, 0})
	if at := claims[0].Attachments[0]; !at.NodeDevice.Shared() || (&state.NodeDevice{Published: []byte("{}")}).Shared() || at.Ready.Since.IsZero() || claims[0].Undeleted[0].GivenUp.IsZero() {
		t.Errorf("got %+v", at)
	}
	difftest.Must(t, s.Put(claims[0]))
	difftest.Same(t, "the record", difftest.Read(t, filepath.Join(dir, "u1.json")), want)
	claims[0].Attachments[0].Ready.Set("False", time.Date(2026, 11, 28, 6, 41, 9, 999, time.FixedZone("east", 3600)))
	difftest.Must(t, s.Put(claims[0]))
	difftest.Contains(t, difftest.Read(t, filepath.Join(dir, "u1.json")), `"ready":{"status":"False","since":"2026-11-28T05:41:09Z"}`)
}

func TestRecordSurvivesRestart(t *testing.T) {
	s, dir := open(t)
	difftest.Must(t, s.Put(full("u2")), s.Put(full("u1")))
	big := full("u3")
	big.Attachments[0].Result = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	difftest.Must(t, s.Put(big))
	difftest.Must(t, errors.Join(s.Remove("u2"), s.Remove("u2"), s.Remove("never there"), s.Close()))
	claims, problems := all(t, reopen(t, dir))
	difftest.Equal(t, claims, []*state.Claim{full("u1"), big})
	difftest.Equal(t, problems, []state.Problem(nil))
}

func TestRecordsHaveMode0600(t *testing.T) {
	s, dir := open(t)
	difftest.Must(t, s.Put(full("u1")))
	for path, want := range map[string]os.FileMode{"": 0o700, "u1.json": 0o600, "lock": 0o600} {
		stat, err := os.Stat(filepath.Join(dir, path))
		if err != nil || stat.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %o", path, stat.Mode(), err, want)
		}
	}
}

func TestStateDirectoryHasOneDriver(t *testing.T) {
	s, dir := open(t)
	_, err := state.Open(dir)
	difftest.Is(t, err, state.ErrLocked)
	for fd := range 100 { // like a child process that has not executed its program yet
		if open, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); filepath.Dir(open) == dir {
			child, err := syscall.Dup(fd)
			difftest.Must(t, err)
			defer syscall.Close(child)
		}
	}
	difftest.Must(t, s.Close())
	reopen(t, dir)
}

func TestCorruptFileIsSetAsideAndReportedAtEachStart(t *testing.T) {
	s, dir := open(t)
	text := func(c *state.Claim) string { data, _ := json.Marshal(c); return string(data) }
	contents := map[string]string{
		"empty": "", "torn": text(full("torn"))[:100], "other": text(full("u1")), "zero": `{"uid":"zero"}`,
		"phase":       strings.Replace(text(full("phase")), `"Added"`, `"Addled"`, 1),
		"unsandboxed": strings.Replace(text(full("unsandboxed")), `"sandbox":"s1",`, "", 1),
		"nameless":    strings.Replace(text(full("nameless")), `"ifName":"net2"`, `"ifName":""`, 1),
		"bare":        strings.Replace(text(full("bare")), `"list":{}`, `"list":null`, 1),
		"owed":        strings.Replace(text(full("owed")), `"list":{"name":"net"}`, `"node":{"name":"d"},"list":null`, 1),
		"undecodable": strings.Replace(text(full("undecodable")), `"claim"`, `"undecodable"`, 1),
		"large":       strings.Repeat(" ", 5<<20),
	}
	for uid, content := range contents {
		difftest.Write(t, filepath.Join(dir, uid+".json"), content, 0o600)
	}
	good := full("u1")
	good.Attachments = append(good.Attachments, state.Attachment{NodeDevice: &state.NodeDevice{}, Phase: state.Prepared})
	difftest.Must(t, s.Put(good))
	good.Attachments[2].List = json.RawMessage("null")
	good.Attachments[2].NodeDevice.Published = json.RawMessage("null")
	for range 2 {
		claims, problems := all(t, s)
		difftest.Equal(t, claims, []*state.Claim{good})
		difftest.Same(t, fmt.Sprint(problems), len(problems), len(contents))
		for _, p := range problems {
			difftest.Same(t, "of "+p.UID, p.Aside, state.AsidePath(dir, p.UID))
			difftest.Same(t, "of "+p.UID, difftest.Read(t, p.Aside), contents[p.UID])
		}
	}
	difftest.Write(t, filepath.Join(dir, "empty.json"), "again", 0o600)
	_, problems := all(t, s)
	difftest.Equal(t, len(problems), len(contents)+1)
	difftest.Same(t, "the first one", difftest.Read(t, state.AsidePath(dir, "empty")), "")
}

func TestFileOfNewerDriverIsKept(t *testing.T) {
	s, dir := open(t)
	path := filepath.Join(dir, "u1.json")
	const content = `{"schema": 99, "uid": {"what": "this was not yet known"}}`
	difftest.Write(t, path, content, 0o600)
	claims, problems := all(t, s)
	want := []state.Problem{{UID: "u1", Err: &state.SchemaError{Path: path, Schema: 99}}}
	difftest.Equal(t, problems, want)
	difftest.Equal(t, claims, []*state.Claim(nil))
	difftest.Equal(t, difftest.Read(t, path), content)
}

func TestUnreadableFileIsAnErrorAndKept(t *testing.T) {
	s, dir := open(t)
	difftest.Must(t, os.Symlink("nowhere", filepath.Join(dir, "link.json")))
	claims, problems := all(t, s) // a link is ignored
	difftest.Same(t, "claims, and problems", []int{len(claims), len(problems)}, []int{0, 0})
	if os.Getuid() == 0 {
		return // root can read all files
	}
	difftest.Must(t, s.Put(full("u1")))
	difftest.Must(t, os.Chmod(filepath.Join(dir, "u1.json"), 0))
	difftest.Is(t, listed(s), os.ErrPermission)
}

func TestClearWorksWhileDriverRuns(t *testing.T) {
	s, dir := open(t)
	c := full("u1")
	c.Attachments[0].Phase = state.Undeleted
	c.Undeleted, c.Attachments = c.Attachments[:1], c.Attachments[1:]
	difftest.Must(t, s.Put(c))
	difftest.Same(t, "before anybody asked for it", s.IsCleared("u1", &c.Undeleted[0]), false)
	got, err := state.Clear(dir, "u1")
	difftest.Must(t, err)
	difftest.Equal(t, got, c)
	difftest.Same(t, "cleared", s.IsCleared("u1", &c.Undeleted[0]), true)
	difftest.Must(t, errors.Join(s.Cleared("u1", &c.Undeleted[0]), s.Cleared("u1", &c.Undeleted[0])))
	difftest.Same(t, "still", s.IsCleared("u1", &c.Undeleted[0]), false)
}

// What cannot be read or written is an error. The driver would release the devices of claims whose records it does not see.
func TestFailureIsNotAbsence(t *testing.T) {
	long := strings.Repeat("l", 246) // its record has the longest name that a file may have
	for _, test := range map[string]struct {
		want string
		do   func(s *state.Store, dir string) error
	}{
		"a record that is no JSON": {"state of claim ns/claim: ", func(s *state.Store, _ string) error {
			c := full("u1")
			c.Attachments[0].List = json.RawMessage("{")
			return s.Put(c)
		}},
		"a UID that is a path": {`"../x.json"`, func(s *state.Store, _ string) error { return s.Put(full("../x")) }},
		"a UID that is hidden": {`".hidden.json"`, func(s *state.Store, _ string) error { return s.Put(full(".hidden")) }},
		"a directory that is gone": {"was it removed", func(s *state.Store, dir string) error {
			return errors.Join(os.Rename(dir, dir+".former"), listed(s))
		}},
		"a directory in its place": {"it is not the one that this process has locked", func(s *state.Store, dir string) error {
			return errors.Join(os.Rename(dir, dir+".former"), os.Mkdir(dir, 0o700), listed(s))
		}},
		"a damaged record that cannot be set aside": {"and the file could not be renamed", func(s *state.Store, dir string) error {
			return errors.Join(os.WriteFile(state.Path(dir, long), nil, 0o600), listed(s))
		}},
		"a path that is relative":    {"must be an absolute path", func(*state.Store, string) error { return of(state.Open("testdata")) }},
		"a list of a file":           {"not a directory", func(_ *state.Store, dir string) error { return of(state.UIDs(dir + "/lock")) }},
		"records at a relative path": {"must be an absolute path", func(*state.Store, string) error { return of(new(state.Netns).Holds("testdata", "", "")) }},
		"records that are not seen": {"are not visible here", func(_ *state.Store, dir string) error {
			return of(new(state.Netns).Holds(dir+"/none/driver/state", "", ""))
		}},
		"an offer that is a directory": {"not a regular file", func(_ *state.Store, dir string) error {
			return errors.Join(os.MkdirAll(dir+"/offer", 0o700), of(state.ReadOffer(dir)))
		}},
		"an offer into a file": {"not a directory", func(_ *state.Store, dir string) error { return state.WriteOffer(dir+"/lock", &state.Offer{}) }},
		"a link in a file":     {"symlink", func(_ *state.Store, dir string) error { return state.Announce(dir+"/lock", "/a") }},
		"no claim to clear":    {"state has no attachment of the claim whose DEL was given up", func(_ *state.Store, dir string) error { return of(state.Clear(dir, "u2")) }},
		"nothing to clear": {"has no attachment of the claim whose DEL was given up", func(s *state.Store, dir string) error {
			return errors.Join(s.Put(full("u1")), of(state.Clear(dir, "u1")))
		}},
		"a damaged claim to clear": {"torn.json: ", func(_ *state.Store, dir string) error {
			return errors.Join(os.WriteFile(dir+"/torn.json", nil, 0o600), of(state.Clear(dir, "torn")))
		}},
		"a captured record that is no JSON": {"u1.json: ", func(*state.Store, string) error { return of(state.Parse("u1.json", []byte("{"))) }},
		"a claim that is a path":            {`"../u1`, func(_ *state.Store, dir string) error { return of(state.Clear(dir, "../u1")) }},
		"a request that cannot be written": {"=s1=net1.cleared", func(s *state.Store, dir string) error {
			c := full("u1")
			c.Undeleted, c.Attachments = c.Attachments[:1], nil
			c.Undeleted[0].Phase = state.Undeleted
			difftest.Write(t, dir+"/u1=s1=net1.cleared/x", "", 0o600)
			return errors.Join(s.Put(c), of(state.Clear(dir, "u1")))
		}},
	} {
		s, dir := open(t)
		difftest.Says(t, test.do(s, dir), test.want)
	}
	held, err := new(state.Netns).Holds("", "", "")
	difftest.Must(t, err)
	difftest.Same(t, "held without a driver", held, false)
	dir := t.TempDir()
	for _, want := range []map[string]bool{{}, {"u1": true, "u2": true}} {
		uids, err := state.UIDs(dir + "/state")
		difftest.Must(t, err)
		difftest.Equal(t, uids, want)
		for _, path := range []string{state.Path(dir+"/state", "u1"), state.AsidePath(dir+"/state", "u2"), dir + "/state/lock"} {
			difftest.Write(t, path, "", 0o600)
		}
	}
}

func of[T any](_ T, err error) error { return err }

func listed(s *state.Store) error {
	_, _, err := s.All(valid)
	return err
}
