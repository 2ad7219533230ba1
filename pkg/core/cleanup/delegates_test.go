package cleanup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// A node has a PF with VFs, a journal, and a delegate that notes the network namespace of its DEL.
type node struct {
	*cleanup.Cleaner
	t     *testing.T
	dir   string // of everything
	netns string // the file with the delegate's CNI_NETNS
	log   bytes.Buffer
}

func newNode(t *testing.T, vfs int) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{t: t, dir: dir, netns: filepath.Join(dir, "netns")}
	difftest.Must(t, os.WriteFile(filepath.Join(dir, "delegate"), []byte("#!/bin/sh\ncat >/dev/null\necho \"$CNI_NETNS\" >"+n.netns+"\necho \"$"+cleanup.WithinEnv+"\" >"+dir+"/within\n"), 0o755))
	settings := config.Node{StateDir: filepath.Join(dir, "state"), DeviceInfoDir: filepath.Join(dir, "infos"), CDIDir: filepath.Join(dir, "cdi")}
	n.Cleaner = cleanup.New(settings, discovery.Finder{Sys: sysfs.New(capturetest.ManyVFs(vfs).Sys())}, "boot", slog.New(slog.NewTextHandler(&n.log, nil)))
	n.Journal.NetnsGone = func(string) (bool, error) { return false, nil }
	n.CNIPath = dir
	return n
}

// add records the attachment of a VF, which a delegate gets by deviceID.
func (n *node) add(container, pod string, vf int, at time.Time) *journal.Entry {
	n.t.Helper()
	e := &journal.Entry{
		Key: journal.Key{Network: "net", ContainerID: container, IfName: "net1"}, Netns: "/run/netns/" + container, Time: at, Pod: pod, Leases: n.leases(vf),
		Delegates: []json.RawMessage{fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"net","type":"delegate","deviceID":%q}`, capturetest.VF(vf))},
	}
	difftest.Must(n.t, n.Journal.Put(e, nil))
	e.Unlock()
	return e
}

// leases returns those of a VF that a delegate gets by deviceID.
func (n *node) leases(vf int) []journal.DeviceLease {
	n.t.Helper()
	list, err := journal.LeasesOf(n.Finder.Sys, journal.Exclusive, capturetest.VF(vf))
	difftest.Must(n.t, err)
	return list
}

// ran reports whether a delegate's DEL has run.
func (n *node) ran() bool { return difftest.Files(n.t, n.netns) != nil }

// said expects that the log says this and nothing else; "" = nothing.
func (n *node) said(want string) {
	n.t.Helper()
	if text := strings.TrimSpace(n.log.String()); (text == "") != (want == "") || !strings.Contains(text, want) {
		n.t.Errorf("the log %q does not say %q", text, want)
	}
}

func (n *node) del(e *journal.Entry) {
	n.t.Helper()
	locked, err := n.Lock(e.Key)
	difftest.Must(n.t, err)
	defer locked.Unlock()
	difftest.Must(n.t, n.Removal(locked).Run())
}

// cost returns how often f reads on a node with n attachments of pods. The PF has a shared lease of each of them.
func cost(t *testing.T, attachments int, f func(n *node)) int {
	t.Helper()
	n := newNode(t, 128)
	for vf := range attachments {
		n.add(fmt.Sprint("c", vf), fmt.Sprint("pod", vf), vf, time.Now())
	}
	own := difftest.ReadCalls(t)
	f(n)
	return difftest.ReadCalls(t) - own
}

func TestCostOfDelIsThatOfAnEmptyNode(t *testing.T) {
	del := func(n *node) { n.del(n.add("own", "own", 127, time.Now())) }
	if few, many := cost(t, 0, del), cost(t, 100, del); many > 2*few {
		t.Errorf("with 0 and 100 other attachments DEL makes %d and %d calls of read", few, many)
	}
}

func TestCostOfGCGrowsWithTheNumberOfStaleAttachments(t *testing.T) {
	gc := func(n *node) {
		n.Journal.NetnsGone = func(string) (bool, error) { return true, nil }
		_, err := n.CollectStale(t.Context(), true, func(context.Context) {})
		difftest.Must(t, err)
		left, err := n.Journal.All()
		difftest.Must(t, err)
		difftest.Same(t, "left", len(left), 0)
	}
	if few, many := cost(t, 8, gc), cost(t, 32, gc); many > 5*few { // with all entries read for each of them, it was more than 6 times
		t.Errorf("GC of 8 and 32 attachments makes %d and %d calls of read", few, many)
	}
}

// A delegate hangs in ADD, and its devinfo is killed. DEL ends it after its limit, and then runs the delegate's DEL.
func TestDelEndsHangingDelegateOfKilledADD(t *testing.T) {
	n := newNode(t, 1)
	e := n.add("c0ffee", "pod", 0, time.Now())
	locked, err := n.Lock(e.Key)
	difftest.Must(t, err)
	hanging := exec.Command("sleep", "3600")
	hanging.Env, hanging.ExtraFiles = []string{cleanup.WithinEnv + "=" + e.Key.String()}, []*os.File{locked.Locked()}
	difftest.Must(t, hanging.Start(), locked.Locked().Close()) // the end of devinfo
	n.Wait, n.Limit = 0, time.Hour
	_, err = n.Lock(e.Key)
	difftest.Says(t, err, "an earlier call for this attachment is still running", "still locked by process "+strconv.Itoa(hanging.Process.Pid))
	n.Wait, n.Limit = time.Hour, 0
	again, err := n.Lock(e.Key)
	difftest.Must(t, err)
	again.Unlock()
	difftest.Contains(t, n.log.String(), "ended a delegate that hung")
	difftest.Says(t, hanging.Wait(), "signal: terminated")
	n.del(e)
	difftest.Same(t, "network namespace for DEL", difftest.Read(t, n.netns), e.Netns+"\n")
	left, err := n.Journal.All()
	difftest.Must(t, err)
	difftest.Same(t, "left", len(left), 0)
}

// DEL and GC give a delegate the network namespace of ADD, unless the path leads elsewhere now or another sandbox has got the
// device.
func TestDelegatesGetNamespaceOnlyIfItIsTheirs(t *testing.T) {
	const process = "/run/proc/4711/ns/net" // in the test's directory
	gone := func(is bool, err error) func(*node) {
		return func(n *node) { n.Journal.NetnsGone = func(string) (bool, error) { return is, err } }
	}
	lost := func(n *node) { n.remove(n.lease("device", "pci-"+capturetest.VF(0))) }
	claim := func(n *node, pod string) {
		difftest.Must(n.t, n.Journal.Hold(&journal.Claim{UID: "u1", Pods: []string{pod}, Leases: n.leases(0)}))
	}
	for name, test := range map[string]struct {
		before, after func(n *node)                // ADD
		netns         string                       // of ADD, in the test's directory; "" = any
		inode         func(recorded uint64) uint64 // nil = not recorded
		gc, none      bool
	}{
		"alone":                               {},
		"beside another VF":                   {before: func(n *node) { n.add("other", "other", 1, time.Now()) }},
		"after an earlier sandbox":            {before: func(n *node) { n.add("earlier", "pod", 0, time.Now()) }},
		"before a later sandbox":              {after: func(n *node) { n.add("later", "pod", 0, time.Now()) }, none: true},
		"before one whose clock was set back": {after: func(n *node) { n.add("later", "pod", 0, time.Now().Add(-time.Hour)) }, none: true},
		"after one whose clock was set back":  {before: func(n *node) { n.add("earlier", "pod", 0, time.Now().Add(time.Hour)) }},
		"without the device":                  {after: func(n *node) { lost(n); n.add("other", "other", 0, time.Now()) }, none: true},
		"before a claim of another pod":       {after: func(n *node) { lost(n); claim(n, "other") }, none: true},
		"beside a claim of the pod":           {before: func(n *node) { claim(n, "pod") }},
		"before another interface of its sandbox": {after: func(n *node) {
			e := &journal.Entry{Key: journal.Key{Network: "net", ContainerID: "c0ffee", IfName: "net2"}, Time: time.Now(), Pod: "pod", Leases: n.leases(0)}
			difftest.Must(n.t, n.Journal.Put(e, nil))
			e.Unlock()
		}},
		"in the namespace of a process":          {netns: process, inode: func(recorded uint64) uint64 { return recorded }},
		"in that of another process":             {netns: process, inode: func(recorded uint64) uint64 { return recorded + 1 }, none: true},
		"in one of a process, by GC":             {netns: process, inode: func(recorded uint64) uint64 { return recorded }, gc: true, none: true},
		"by GC":                                  {gc: true},
		"in one that is gone, by GC":             {after: gone(true, nil), gc: true, none: true},
		"in one that is gone":                    {after: gone(true, nil)}, // the runtime knows better
		"in one of which that is unknown, by GC": {after: gone(false, os.ErrPermission), gc: true, none: true},
		"with a lease of the device that is none": {after: func(n *node) {
			lost(n)
			difftest.Write(n.t, n.lease("device", "pci-"+capturetest.VF(0))+"/x", "", 0o600)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 2)
			listens := 0
			n.Listen = func() { listens++ }
			if test.before != nil {
				test.before(n)
			}
			e := &journal.Entry{
				Key: journal.Key{Network: "net", ContainerID: "c0ffee", IfName: "net1"}, Netns: filepath.Join(n.dir, "netns-of-pod"), Time: time.Now(), Pod: "pod", Leases: n.leases(0),
				Delegates: []json.RawMessage{[]byte(`{"cniVersion": "1.0.0", "name": "net", "type": "delegate"}`)},
			}
			if test.netns != "" {
				e.Netns = n.dir + test.netns
			}
			difftest.Write(t, e.Netns, "", 0o600)
			if test.inode != nil {
				e.Inode = test.inode(link.NetnsInode(e.Netns))
			}
			difftest.Must(t, n.Journal.Put(e, nil))
			if test.after != nil {
				test.after(n)
			}
			if test.gc {
				e.Unlock()
				judged, err := n.Journal.Get(e.Key)
				difftest.Must(t, err)
				done, err := n.Collect(e.Key, judged, nil)
				difftest.Must(t, err)
				difftest.Same(t, "done", done, true)
			} else {
				difftest.Must(t, n.Removal(e).Run())
			}
			want := e.Netns + "\n"
			if test.none {
				want = "\n"
			}
			difftest.Same(t, "network namespace", difftest.Read(t, n.netns), want)
			difftest.Same(t, "signals are received", listens, 1)
			difftest.Same(t, "it is said why there is none", n.log.Len() > 0, test.none && !test.gc)
			difftest.Same(t, cleanup.WithinEnv, difftest.Read(t, n.dir+"/within"), "net/c0ffee/net1\n")
		})
	}
}

// Without a record of ADD, the configuration says which delegates may have run. Their failures do not keep the pod, except
// one that a delegate wants to be asked again for.
func TestDelegatesOfLostRecordRunUnlessAnotherHasTheirDevice(t *testing.T) {
	for name, test := range map[string]struct {
		device  int // VF of the delegate's deviceID
		fails   int // code of the delegate's error; 0 = none
		blind   bool
		unclear bool // who has the device
		runs    bool
		is, log string
	}{
		"free":                      {device: 0, runs: true},
		"another's":                 {device: 1, log: "not running a delegate's DEL"},
		"another's, without a /sys": {device: 1, blind: true, runs: true},
		"of somebody unknown":       {device: 0, unclear: true, log: "not running a delegate's DEL"},
		"free, and it fails":        {device: 0, fails: 999, runs: true, log: "ignoring a delegate's failed DEL"},
		"free, and it is busy":      {device: 0, fails: 11, runs: true, is: "delegates[0] (delegate): DEL: no"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 2)
			n.add("other", "other", 1, time.Now())
			if test.blind {
				n.Finder = discovery.Finder{}
			}
			if test.unclear {
				difftest.Write(t, n.lease("device", "pci-"+capturetest.VF(0))+"/x", "", 0o600)
			}
			if test.fails != 0 {
				difftest.Write(t, n.dir+"/delegate", fmt.Sprintf("#!/bin/sh\ncat >/dev/null\necho x >%s\necho '{\"code\": %d, \"msg\": \"no\"}'\nexit 1\n", n.netns, test.fails), 0o755)
			}
			err := n.Removal(&journal.Entry{
				Key: journal.Key{Network: "net", ContainerID: "c0ffee", IfName: "net1"}, Netns: "/run/netns/pod", Pod: "pod",
				Delegates: []json.RawMessage{fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "net", "type": "delegate", "deviceID": %q}`, capturetest.VF(test.device))},
			}).Run()
			if test.is == "" {
				difftest.Must(t, err)
			} else {
				difftest.Says(t, err, test.is)
			}
			difftest.Same(t, "the delegate's DEL has run", n.ran(), test.runs)
			n.said(test.log)
		})
	}
}
