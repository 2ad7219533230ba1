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
	"devinfo-cni.io/pkg/host/store"
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
	if len(claims) != 1 || problems != nil {
		t.Fatalf("got %v, %v", claims, problems)
	}
	if at := claims[0].Attachments[0]; !at.NodeDevice.Shared() || at.Ready.Since.IsZero() || claims[0].Undeleted[0].GivenUp.IsZero() {
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
		"bare":        strings.Replace(text(full("bare")), `"sandbox":"s1",`, "", 1),
		"undecodable": strings.Replace(text(full("undecodable")), `"claim"`, `"undecodable"`, 1),
		"large":       strings.Repeat(" ", 5<<20),
	}
	for uid, content := range contents {
		difftest.Write(t, filepath.Join(dir, uid+".json"), content, 0o600)
	}
	difftest.Must(t, s.Put(full("u1")))
	for range 2 {
		claims, problems := all(t, s)
		difftest.Equal(t, claims, []*state.Claim{full("u1")})
		difftest.Same(t, fmt.Sprint(problems), len(problems), len(contents))
		for _, p := range problems {
			difftest.Same(t, "of "+p.UID, difftest.Read(t, p.Aside), contents[p.UID])
		}
	}
	difftest.Write(t, filepath.Join(dir, "empty.json"), "again", 0o600)
	if _, problems := all(t, s); len(problems) != len(contents)+1 {
		t.Errorf("got %v", problems)
	}
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
	if claims != nil || problems != nil {
		t.Errorf("got %v, %v", claims, problems)
	}
	if os.Getuid() == 0 {
		return // root can read all files
	}
	difftest.Must(t, s.Put(full("u1")))
	difftest.Must(t, os.Chmod(filepath.Join(dir, "u1.json"), 0))
	_, _, err := s.All(valid)
	difftest.Is(t, err, os.ErrPermission)
}

func TestUIDIsNotAPath(t *testing.T) {
	s, _ := open(t)
	for _, uid := range []string{"../x", "a/b", ".hidden"} {
		difftest.As[*store.NameError](t, s.Put(full(uid)))
	}
}

func TestClearWorksWhileDriverRuns(t *testing.T) {
	s, dir := open(t)
	c := full("u1")
	c.Attachments[0].Phase = state.Undeleted
	c.Undeleted, c.Attachments = c.Attachments[:1], c.Attachments[1:]
	difftest.Must(t, s.Put(c))
	if s.IsCleared("u1", &c.Undeleted[0]) {
		t.Error("before anybody asked for it")
	}
	got, err := state.Clear(dir, "u1")
	difftest.Must(t, err)
	difftest.Equal(t, got, c)
	if !s.IsCleared("u1", &c.Undeleted[0]) {
		t.Error("it is not")
	}
	difftest.Must(t, errors.Join(s.Cleared("u1", &c.Undeleted[0]), s.Cleared("u1", &c.Undeleted[0])))
	if s.IsCleared("u1", &c.Undeleted[0]) {
		t.Error("still")
	}
}

func TestClearRefusesAClaimWithoutUndeletedAttachments(t *testing.T) {
	s, dir := open(t)
	difftest.Must(t, s.Put(full("u1")))
	torn := filepath.Join(dir, "torn.json")
	difftest.Write(t, torn, "{", 0o600)
	const none = "has no attachment of the claim whose DEL was given up"
	for uid, want := range map[string]string{"u1": none, "u2": none, "torn": torn + ": ", "../u1": `"../u1"`} {
		c, err := state.Clear(dir, uid)
		difftest.Says(t, err, want)
		difftest.Same(t, uid, c, (*state.Claim)(nil))
	}
	difftest.Equal(t, difftest.Read(t, torn), "{") // only the driver sets it aside
}

// The driver would release the devices of claims whose records it does not see.
func TestOtherDirectoryIsNotAnEmptyList(t *testing.T) {
	s, dir := open(t)
	difftest.Must(t, s.Put(full("u1")), os.Rename(dir, dir+".former"))
	if _, _, err := s.All(valid); err == nil {
		t.Error("missing: no error")
	}
	difftest.Must(t, os.Mkdir(dir, 0o700))
	if _, _, err := s.All(valid); err == nil {
		t.Error("replaced: no error")
	}
}
