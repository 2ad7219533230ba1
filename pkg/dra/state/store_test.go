package state_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/state"
)

func open(t *testing.T) (*state.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "plugins/driver/state")
	return reopen(t, dir), dir
}

func reopen(t *testing.T, dir string) *state.Store {
	t.Helper()
	s, err := state.Open(dir)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func full(uid types.UID) *state.Claim {
	share, bus := types.UID("f00"), "0000:01:00.2"
	return &state.Claim{
		Schema: state.Schema, Namespace: "ns", Name: "claim", UID: uid, StatusOwed: true,
		Pod: state.Pod{Namespace: "ns", Name: "pod", UID: "p1"},
		Attachments: []state.Attachment{
			{Request: "a/first", Pool: "node", Device: "cni", ShareID: &share, Network: "net", CNIVersion: "1.1.0", IfName: "net1",
				List: json.RawMessage(`{"name":"net"}`), Phase: state.Added, Execution: state.Execution{
					Sandbox: "s1", Netns: "/var/run/netns/x", BootID: "b", Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", "pod"}},
					InfoFile: "/run/f", Result: json.RawMessage(`{"ips":[]}`), Info: json.RawMessage(`{"type":"pci"}`),
					Metadata: &state.Metadata{
						Attributes:  map[string]resourceapi.DeviceAttribute{"resource.kubernetes.io/pciBusID": {StringValue: &bus}},
						NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1"},
					}}},
			{Request: "b", Pool: "node", Device: "cni", Network: "net", IfName: "net2", List: json.RawMessage(`{}`), Phase: state.Prepared, Error: "why"},
		},
	}
}

func all(t *testing.T, s *state.Store) ([]*state.Claim, []state.Problem) {
	t.Helper()
	claims, problems, err := s.All()
	must(t, err)
	return claims, problems
}

func put(t *testing.T, s *state.Store, c *state.Claim) {
	t.Helper()
	must(t, s.Put(c))
}

func TestWhatWasPutIsThereAfterARestart(t *testing.T) {
	s, dir := open(t)
	put(t, s, full("u2"))
	put(t, s, full("u1"))
	big := full("u3")
	big.Attachments[0].Result = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	put(t, s, big)
	must(t, errors.Join(s.Remove("u2"), s.Remove("u2"), s.Remove("never there"), s.Close()))
	claims, problems := all(t, reopen(t, dir))
	if diff := cmp.Diff([]*state.Claim{full("u1"), big}, claims, cmp.Comparer(func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })); diff != "" || problems != nil {
		t.Errorf("%v\n%s", problems, diff)
	}
}

func TestFilesArePrivate(t *testing.T) {
	s, dir := open(t)
	put(t, s, full("u1"))
	for path, want := range map[string]os.FileMode{"": 0o700, "u1.json": 0o600, "lock": 0o600} {
		stat, err := os.Stat(filepath.Join(dir, path))
		if err != nil || stat.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %o", path, stat.Mode(), err, want)
		}
	}
}

func TestASecondAgentIsRefusedWhileTheFirstOneLives(t *testing.T) {
	s, dir := open(t)
	if _, err := state.Open(dir); !errors.Is(err, state.ErrLocked) {
		t.Errorf("got %v", err)
	}
	for fd := range 100 { // as a child has them that is not another program yet
		if open, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); filepath.Dir(open) == dir {
			child, err := syscall.Dup(fd)
			must(t, err)
			defer syscall.Close(child)
		}
	}
	must(t, s.Close())
	reopen(t, dir)
}

func TestAFileThatMakesNoSenseIsSetAsideAndReportedAtEveryStart(t *testing.T) {
	s, dir := open(t)
	text := func(c *state.Claim) string { data, _ := json.Marshal(c); return string(data) }
	contents := map[string]string{
		"empty": "", "torn": text(full("torn"))[:100], "other": text(full("u1")), "zero": `{"uid":"zero"}`,
		"phase": strings.Replace(text(full("phase")), `"Added"`, `"Addled"`, 1),
		"bare":  strings.Replace(text(full("bare")), `"sandbox":"s1",`, "", 1),
		"large": strings.Repeat(" ", 5<<20),
	}
	for uid, content := range contents {
		write(t, filepath.Join(dir, uid+".json"), content)
	}
	put(t, s, full("u1"))
	for range 2 {
		claims, problems := all(t, s)
		difftest.Equal(t, claims, []*state.Claim{full("u1")})
		if len(problems) != len(contents) {
			t.Errorf("got %v", problems)
		}
		for _, p := range problems {
			if data, err := os.ReadFile(p.Aside); err != nil || string(data) != contents[string(p.UID)] {
				t.Errorf("%s: %v: the content is lost: %v", p.UID, p.Err, err)
			}
		}
	}
	write(t, filepath.Join(dir, "empty.json"), "again")
	if _, problems := all(t, s); len(problems) != len(contents)+1 {
		t.Errorf("got %v", problems)
	}
}

func TestAFileOfANewerAgentIsLeftAlone(t *testing.T) {
	s, dir := open(t)
	path := filepath.Join(dir, "u1.json")
	const content = `{"schema": 99, "uid": {"what": "this was not yet known"}}`
	write(t, path, content)
	claims, problems := all(t, s)
	want := []state.Problem{{UID: "u1", Err: &state.SchemaError{Path: path, Schema: 99}}}
	if diff := cmp.Diff(want, problems); diff != "" || claims != nil {
		t.Errorf("%v\n%s", claims, diff)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != content {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestAnUnreadableFileIsAnErrorAndStaysInItsPlace(t *testing.T) {
	s, dir := open(t)
	must(t, os.Symlink("nowhere", filepath.Join(dir, "link.json")))
	claims, problems := all(t, s) // a link is none of ours
	if claims != nil || problems != nil {
		t.Errorf("got %v, %v", claims, problems)
	}
	if os.Getuid() == 0 {
		return // root reads everything
	}
	put(t, s, full("u1"))
	must(t, os.Chmod(filepath.Join(dir, "u1.json"), 0))
	if _, _, err := s.All(); !errors.Is(err, os.ErrPermission) {
		t.Errorf("got %v", err)
	}
}

func TestAUIDIsNoPath(t *testing.T) {
	s, _ := open(t)
	var bad *store.NameError
	for _, uid := range []types.UID{"../x", "a/b", ".hidden"} {
		if err := s.Put(full(uid)); !errors.As(err, &bad) {
			t.Errorf("%s: got %v", uid, err)
		}
	}
}

func TestAbandonedAttachmentsAreClearedWhileTheAgentRuns(t *testing.T) {
	s, dir := open(t)
	c := full("u1")
	c.Attachments[0].Phase = state.Abandoned
	c.Abandoned, c.Attachments = c.Attachments[:1], c.Attachments[1:]
	put(t, s, c)
	if s.IsCleared("u1", &c.Abandoned[0]) {
		t.Error("before anybody asked for it")
	}
	got, err := state.Clear(dir, "u1")
	must(t, err)
	difftest.Equal(t, got, c)
	if !s.IsCleared("u1", &c.Abandoned[0]) {
		t.Error("it is not")
	}
	must(t, errors.Join(s.Cleared("u1", &c.Abandoned[0]), s.Cleared("u1", &c.Abandoned[0])))
	if s.IsCleared("u1", &c.Abandoned[0]) {
		t.Error("still")
	}
}

func TestClearRefusesAClaimWithoutAbandonedAttachments(t *testing.T) {
	s, dir := open(t)
	put(t, s, full("u1"))
	torn := filepath.Join(dir, "torn.json")
	write(t, torn, "{")
	const none = "has no attachment of it whose DEL was given up"
	for uid, want := range map[types.UID]string{"u1": none, "u2": none, "torn": torn + ": ", "../u1": `"../u1"`} {
		if c, err := state.Clear(dir, uid); c != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v", uid, c, err)
		}
	}
	if _, err := os.Stat(torn); err != nil {
		t.Error(err) // only the agent puts it aside
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

var must = difftest.Must
