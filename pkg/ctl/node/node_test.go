package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

var must = difftest.Must

type noInterfaces struct{ discovery.Interfaces }

func (noInterfaces) Interface(string, string) (link.Interface, error) {
	return link.Interface{}, link.ErrNoInterface
}

// opened is a node on which pods are attached in the journal; the namespace "gone" is.
func opened(t *testing.T) (*node.Node, string) {
	t.Helper()
	dir := t.TempDir()
	infos := dir + "/infos"
	put := func(boot string, e journal.Entry) {
		e.Network, e.IfName, e.Dir, e.File = "net", "net1", infos, e.ContainerID
		must(t, journal.Open(dir+"/state", boot).Record(&e, nil))
		e.Unlock()
	}
	put("boot", journal.Entry{Key: journal.Key{ContainerID: "alive"}, Netns: "there", Complete: true, Wrote: true, Args: "K8S_POD_NAMESPACE=b;K8S_POD_NAME=alive"})
	put("boot", journal.Entry{Key: journal.Key{ContainerID: "adding"}, Netns: "there", Args: "K8S_POD_NAMESPACE=a;K8S_POD_NAME=adding"})
	put("boot", journal.Entry{Key: journal.Key{ContainerID: "lost"}, Netns: "there", Complete: true, Wrote: true})
	put("boot", journal.Entry{Key: journal.Key{ContainerID: "ended"}, Netns: "gone", Complete: true, Wrote: true})
	put("older", journal.Entry{Key: journal.Key{ContainerID: "orphan"}, Netns: "there", Complete: true})
	put("boot", journal.Entry{Key: journal.Key{ContainerID: "unknown"}, Netns: "hidden", Complete: true})
	must(t, os.WriteFile(dir+"/state/attachments/net@torn@net1", []byte("{"), 0o600))
	must(t, os.WriteFile(dir+"/state/attachments/net@newer@net1", []byte(`{"format": 99}`), 0o600))
	for _, name := range []string{"alive", "adding", "ended", "stranger"} {
		must(t, store.Open(infos).Write(name, []byte(`{"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "path": "/m", "mode": "ip"}}`)))
	}
	return node.Open(node.Options{
		Settings: config.Node{StateDir: dir + "/state", DeviceInfoDir: infos}, BootID: "boot", ClaimDir: dir + "/claims",
		Sys: sysfs.New(fstest.MapFS{}), Finder: &discovery.Finder{Interfaces: noInterfaces{}},
		NetnsGone: func(path string) (bool, error) {
			if path == "hidden" {
				return false, errors.New("it cannot be told")
			}
			return path == "gone", nil
		},
	}), dir
}

func TestEachAttachmentHasItsState(t *testing.T) {
	n, _ := opened(t)
	list, err := n.Attachments()
	must(t, err)
	got, left := map[string]string{}, []string{}
	for _, a := range list {
		got[a.ContainerID] = string(a.State)
		if a.Left() {
			left = append(left, a.ContainerID)
		}
	}
	want := map[string]string{"alive": "ok", "adding": "adding", "lost": "file missing", "ended": "dead", "orphan": "dead",
		"unknown": "unknown", "torn": "corrupt", "newer": "newer format"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ended", "orphan"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if last := list[len(list)-1]; last.Pod != "b/alive" {
		t.Errorf("not sorted by pod: the last is %s", last.Pod)
	}
}

// What may be in use is never garbage: in doubt it is skipped.
func TestGarbageIsWhatNobodyUses(t *testing.T) {
	n, dir := opened(t)
	g, err := n.Garbage()
	must(t, err)
	files, skipped := map[string][]string{}, []string{}
	for _, o := range g.Dead {
		for _, f := range o.Files {
			name, err := filepath.Rel(dir, f)
			must(t, err)
			files[o.Attachment] = append(files[o.Attachment], name)
		}
	}
	for _, o := range g.Skipped {
		skipped = append(skipped, o.Attachment)
	}
	want := map[string][]string{
		"net/ended/net1":  {"infos/ended", "state/attachments/net@ended@net1"},
		"net/orphan/net1": {"state/attachments/net@orphan@net1"},
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"net/newer/net1", "net/torn/net1", "net/unknown/net1"}, skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{dir + "/infos/stranger"}, g.Unowned); diff != "" {
		t.Errorf("unowned (-want +got):\n%s", diff)
	}
}

// A name of a captured host leads nowhere else.
func TestPathsStayInTheCapturedHost(t *testing.T) {
	n := node.Node{Options: node.Options{Root: "/tmp/x"}}
	for name, want := range map[string]string{"/etc/a": "/tmp/x/etc/a", "/../../etc/a": "/tmp/x/etc/a", "a/../..": "/tmp/x"} {
		if got := n.Path(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
