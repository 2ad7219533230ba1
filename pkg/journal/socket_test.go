package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/journal"
)

func key(id, ifName string) journal.Key {
	return journal.Key{Network: "n", ContainerID: id, IfName: ifName}
}

func putSockets(t *testing.T, j *journal.Journal, k journal.Key, pod, dir string) *journal.Entry {
	t.Helper()
	return putEntry(t, j, &journal.Entry{Key: k, Pod: pod, SocketDir: dir})
}

// Two interfaces of one pod share it, and so does the pod's next sandbox, until the last
// of them is gone.
func TestASocketDirectoryIsOnePods(t *testing.T) {
	j, dir := open(t)
	const shared = "/run/vhost-user/pod"
	net1 := putSockets(t, j, key("sandbox", "net1"), "uid", shared)
	net2 := putSockets(t, j, key("sandbox", "net2"), "uid", shared)
	again := putSockets(t, j, key("next", "net1"), "uid", shared)
	for _, e := range []*journal.Entry{net1, net2, again} {
		err := refuse(t, j, &journal.Entry{Key: key2, Pod: "other", SocketDir: shared})
		var owned *journal.OwnedError
		if !errors.As(err, &owned) || owned.What != "socket directory" || owned.File != shared || owned.Owner.Network != "n" {
			t.Errorf("got %v", err)
		}
		if got, err := j.SocketClaims(e.Key); err != nil || !reflect.DeepEqual(got, []string{shared}) {
			t.Errorf("claims of %s: %q, %v", e.Key, got, err)
		}
		must(t, j.Forget(e), j.Forget(e))
	}
	expectFiles(t, dir)
	putSockets(t, j, key2, "other", shared)
}

func TestPodsWithoutANameShareNothing(t *testing.T) {
	j, _ := open(t)
	putSockets(t, j, key1, "", "/d")
	putSockets(t, j, key1, "", "/d") // but with itself
	refuse(t, j, &journal.Entry{Key: key2, SocketDir: "/d"})
}

func TestSocketClaimsThatCountForNothingGiveWay(t *testing.T) {
	j, dir := open(t)
	putSockets(t, journal.Open(dir, "an older boot"), key("old", "net1"), "a", "/d")
	putSockets(t, j, key("killed", "net1"), "b", "/d")
	remove(t, filepath.Join(dir, "attachments/n@killed@net1"))
	putSockets(t, j, key("moved", "net1"), "b", "/d")
	overwrite(t, dir, key("moved", "net1"), `{"format":2,"network":"n","containerID":"moved","ifName":"net1","bootID":"`+boot+`","socketDir":"/e"}`)
	must(t, os.WriteFile(filepath.Join(dir, "sockets/d/README"), nil, 0o600))
	putSockets(t, j, key1, "c", "/d")
	got, err := os.ReadDir(filepath.Join(dir, "sockets/d"))
	if err != nil || len(got) != 1 || got[0].Name() != "net-a@c0ffee@net1" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestPathsThatLookAlikeAreDifferentDirectories(t *testing.T) {
	j, dir := open(t)
	for n, path := range []string{"/a/b", "/a%2Fb", "/a%252Fb", "/a"} {
		k := key(string(rune('a'+n)), "net1")
		putSockets(t, j, k, k.ContainerID, path)
		if got, err := j.SocketClaims(k); err != nil || !reflect.DeepEqual(got, []string{path}) {
			t.Errorf("claims: %q, %v, want %s", got, err, path)
		}
	}
	for _, k := range []journal.Key{key("a", "net1"), key("b", "net1"), key("c", "net1"), key("d", "net1")} {
		must(t, j.Forget(former(t, j, k)))
	}
	expectFiles(t, dir)
}

// A DEL that was killed: its link is gone, the empty directory is not.
func TestForgetTakesAnEmptyDirectoryOfClaimsAlong(t *testing.T) {
	j, dir := open(t)
	e := putSockets(t, j, key1, "p", "/d")
	remove(t, filepath.Join(dir, "sockets/d/net-a@c0ffee@net1"))
	must(t, j.Forget(e))
	expectFiles(t, dir)
}

func TestALongDirectoryIsRefusedByItsPath(t *testing.T) {
	j, dir := open(t)
	path := "/run/" + strings.Repeat("d/", 120)
	err := refuse(t, j, &journal.Entry{Key: key1, Pod: "p", SocketDir: path})
	if !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	expectFiles(t, dir)
}
