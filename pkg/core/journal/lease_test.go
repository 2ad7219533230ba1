package journal_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

func key(id, ifName string) journal.Key {
	return journal.Key{Network: "n", ContainerID: id, IfName: ifName}
}

func expectOwner(t *testing.T, j *journal.Journal, file string, want *journal.Key) {
	t.Helper()
	got, err := j.Owner(journal.OfFile, file)
	must(t, err)
	difftest.Same(t, "owner of "+file, got, want)
}

// everything returns a pod's entry that names one thing of each kind.
func everything(k journal.Key, pod string) *journal.Entry {
	return &journal.Entry{
		Key: k, Pod: pod, File: "f", CDI: journal.CDI{File: "s"}, SocketDir: "/d",
		Leases: []journal.DeviceLease{{ID: "pci-vf", Mode: journal.Exclusive}, {ID: "pci-pf", Mode: journal.Shared}},
	}
}

func has(id string, mode journal.SharingMode) []journal.DeviceLease {
	return []journal.DeviceLease{{ID: id, Mode: mode}}
}

// If another pod has one of the leases, whatever its kind, Put takes none of them. A file or spec belongs to one attachment; the
// attachments of a pod share a socket directory or device.
func TestRefusedLeaseChangesNothing(t *testing.T) {
	for kind, theirs := range map[journal.Kind]journal.Entry{
		journal.OfFile: {File: "f"}, journal.OfSpec: {CDI: journal.CDI{File: "s"}}, journal.OfSocket: {SocketDir: "/d"},
		journal.OfDevice: {Leases: has("pci-vf", journal.Exclusive)},
	} {
		j, dir := open(t)
		theirs.Key, theirs.Pod = key2, "other"
		same := theirs
		same.Key = key("c", "net2")
		record(t, j, &theirs)
		record(t, j, &theirs) // the same attachment may record again
		before := files(t, dir)
		held := refuse(t, j, everything(key1, "pod"))
		difftest.Equal(t, []any{held.Kind, held.Holder.Entry.Key}, []any{kind, key2})
		difftest.Same(t, held.Error(), strings.HasSuffix(held.Error(), ": belongs to attachment net-a/decade/net1"), kind != journal.OfDevice)
		expectFiles(t, dir, before...)
		must(t, j.Forget(everything(key1, "pod"))) // like the DEL after the failed ADD
		expectFiles(t, dir, before...)
		mine := record(t, j, &journal.Entry{Key: key1, Pod: "pod"})
		before = files(t, dir)
		refuse(t, j, everything(key1, "pod"))
		expectFiles(t, dir, before...)
		must(t, j.Forget(mine))
		difftest.Same(t, string(kind)+" of the same pod", tryRecord(t, j, &same) == nil, kind == journal.OfSocket || kind == journal.OfDevice)
		must(t, j.Forget(&same), j.Forget(&theirs))
		record(t, j, everything(key1, "pod"))
	}
	j, _ := open(t)
	nameless := &journal.Entry{Key: key1, Leases: has("pci-vf", journal.Exclusive)}
	record(t, j, nameless)
	refuse(t, j, &journal.Entry{Key: key2, Leases: nameless.Leases})
	refuse(t, j, &journal.Entry{Key: key2, Leases: []journal.DeviceLease{{ID: "pci-vf", Mode: journal.Exclusive, Object: 7}}})
}

func TestHeldErrorNamesHolderOfWholeDevice(t *testing.T) {
	j, _ := open(t)
	record(t, j, &journal.Entry{
		Key: key1, Pod: "a", Args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web", Time: time.Unix(0, 0), Leases: has("pci-0000:01:00.0", journal.Exclusive),
	})
	held := refuse(t, j, &journal.Entry{Key: key2, Pod: "b", Leases: []journal.DeviceLease{
		{ID: "pci-0000:01:10.0", Mode: journal.Exclusive}, {ID: "pci-0000:01:00.0", Mode: journal.Shared},
	}})
	const want = "device 0000:01:00.0, which 0000:01:10.0 is a part of: is held by pod shop/web (net1, network net-a), since 1970-01-01 00:00:00 UTC"
	difftest.Equal(t, held.Error(), want)
	difftest.Equal(t, journal.DeviceName("iommu-15"), "IOMMU group 15")
}

func TestLeasesOfDeviceCoverWhatContainsIt(t *testing.T) {
	sys := capturetest.Load(t, "mlx5-vdpa").Sys()
	broken := capturetest.Tree{FS: sys, BeforeCall: func(string) error { return syscall.EIO }}
	for name, want := range map[string]string{
		"vdpa9": "[]", "0000:65:00.0": "[pci-0000:65:00.0 mode]", "0000:65:00.4": "[pci-0000:65:00.4 mode pci-0000:65:00.0 shared]",
		"vdpa4": "[vdpa-vdpa4 mode pci-0000:65:00.4 shared pci-0000:65:00.0 shared]",
	} {
		for _, mode := range []journal.SharingMode{journal.Exclusive, journal.Shared} {
			list, err := journal.LeasesOf(sysfs.New(sys), mode, name)
			must(t, err)
			got := []string{}
			for _, l := range list {
				got = append(got, l.ID+" "+string(l.Mode))
			}
			difftest.Same(t, name, fmt.Sprint(got), strings.Replace(want, "mode", string(mode), 1))
		}
		_, err := journal.LeasesOf(sysfs.New(broken), journal.Shared, name)
		difftest.Is(t, err, syscall.EIO)
	}
	vf, pf := has("pci-vf", journal.Exclusive), has("pci-pf", journal.Shared)
	difftest.Equal(t, journal.MergeLeases(pf, vf[0], pf[0], has("pci-vf", journal.Shared)[0]), []journal.DeviceLease{pf[0], vf[0]})
	difftest.Equal(t, journal.MergeLeases(has("pci-vf", journal.Shared), vf...), vf)
}

// Each case leaves leases on disk that must not count. The model knows more, but only devices.
func TestStaleLeaseExcludesNoHolder(t *testing.T) {
	for name, leave := range map[string]func(j *journal.Journal, dir string){
		"killed": func(j *journal.Journal, dir string) {
			record(t, j, everything(key1, "a"))
			must(t, os.Remove(filepath.Join(dir, "attachments/net-a@c0ffee@net1")))
		},
		"of another boot": func(_ *journal.Journal, dir string) {
			record(t, journal.Open(dir, "another boot"), everything(key1, "a"))
		},
		"torn in an earlier boot": func(j *journal.Journal, dir string) {
			record(t, j, everything(key1, "a"))
			overwrite(t, dir, key1, "{")
			ofEarlierBoot(t, filepath.Join(dir, "attachments/net-a@c0ffee@net1"))
		},
		"of an entry that does not name it": func(j *journal.Journal, dir string) {
			record(t, j, everything(key1, "a"))
			overwrite(t, dir, key1, `{"format":3,"network":"net-a","containerID":"c0ffee","ifName":"net1","bootID":"`+boot+`","file":"g","new":{"a":[1]}}`)
		},
		"to elsewhere": func(_ *journal.Journal, dir string) {
			for _, thing := range []string{"file/f", "spec/s", "socket/%2Fd", "device/pci-vf", "device/pci-pf"} {
				link(t, "/etc/passwd", filepath.Join(dir, "leases", thing, "x"))
				link(t, "/etc/passwd", filepath.Join(dir, "leases", thing, "~x"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, dir := open(t)
			leave(j, dir)
			record(t, j, everything(key2, "b"))
			expectOwner(t, j, "f", &key2)
			holders, err := j.Holders(journal.OfDevice, "pci-vf")
			must(t, err)
			difftest.Same(t, "holders", []any{len(holders), holders[0].Entry.Key}, []any{1, key2})
			if left := former(t, j, key1); left != nil {
				must(t, j.Forget(left)) // a DEL must not remove the new lease
			}
			expectOwner(t, j, "f", &key2)
			difftest.Same(t, "the new lease is left", []bool{j.Has(former(t, j, key2), "pci-vf", 0), j.Holds(key1, journal.OfFile, "f")}, []bool{true, false})
		})
	}
}

// Only where the processes are those that ADD saw, another inode means that the number has been reused.
func TestAttachmentIsGoneOnceItsPathNamesAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net")
	must(t, os.WriteFile(path, nil, 0o600))
	stat, err := os.Stat(path)
	must(t, err)
	now := stat.Sys().(*syscall.Stat_t).Ino
	for _, c := range []struct {
		inode   uint64
		sees    bool
		unknown error
		why     string
	}{
		{inode: now, sees: true}, {inode: 0, sees: true}, {inode: now + 1}, {inode: now + 1, sees: true, unknown: syscall.EIO},
		{inode: now + 1, sees: true, why: "network namespace " + path + " is gone: the process that the path names is another one than at ADD"},
	} {
		j, _ := open(t)
		j.NetnsGone, j.OnNode = func(string) (bool, error) { return false, c.unknown }, func() bool { return c.sees }
		e := record(t, j, &journal.Entry{Key: key1, Netns: path, Inode: c.inode, Leases: has("pci-vf", journal.Exclusive)})
		why, err := j.Stale(e)
		difftest.Is(t, err, c.unknown)
		difftest.Same(t, fmt.Sprintf("%+v", c), why, c.why)
		difftest.Same(t, "its device is free", j.Free(&journal.Entry{Key: key2, Leases: e.Leases}) == nil, c.why != "")
	}
}

func TestFileInPlaceOfLeaseIsAnError(t *testing.T) {
	j, dir := open(t)
	must(t, os.MkdirAll(filepath.Join(dir, "leases/file/f"), 0o700), os.WriteFile(filepath.Join(dir, "leases/file/f/x"), nil, 0o600))
	difftest.Says(t, tryRecord(t, j, &journal.Entry{Key: key1, File: "f"}), "leases/file/f/x: not a lease (must be a symbolic link): remove it")
}

func TestSimilarPathsHaveSeparateLeases(t *testing.T) {
	j, dir := open(t)
	paths := []string{"/a/b", "/a%2Fb", "/a%252Fb", "/a", "/.", "/..", "/../a", "/.a", "/%2Ea"}
	for n, path := range paths {
		k := key(string(rune('a'+n)), "net1")
		e := record(t, j, &journal.Entry{Key: k, Pod: k.ContainerID, SocketDir: path})
		torn := &journal.Entry{Key: k}
		must(t, j.FillFromLeases(torn))
		difftest.Equal(t, torn.SocketDir, path)
		defer func() { must(t, j.Forget(e)); expectFiles(t, dir, files(t, dir)...) }()
	}
}

// An allocation of sriov-cni counts if its network namespace exists and belongs to another pod.
func TestSRIOVCNILockExcludesOtherPods(t *testing.T) {
	j, dir := open(t)
	locks := t.TempDir()
	j.SRIOVLocks = locks
	j.NetnsGone = func(path string) (bool, error) { return path == "/run/netns/gone", nil }
	for netns, want := range map[string]bool{"/run/netns/theirs": false, "/run/netns/mine\n": true, "/run/netns/gone": true, "": true} {
		must(t, os.WriteFile(filepath.Join(locks, "0000:01:10.0"), []byte(netns), 0o600))
		e := &journal.Entry{Key: key1, Netns: "/run/netns/mine", Leases: has("pci-0000:01:10.0", journal.Exclusive)}
		err := tryRecord(t, j, e)
		if (err == nil) != want || err != nil && err.Error() != "device 0000:01:10.0: is held by network namespace /run/netns/theirs (by sriov-cni)" {
			t.Errorf("%q: got %v", netns, err)
		}
		must(t, j.Forget(e))
	}
	expectFiles(t, dir)
	must(t, os.WriteFile(filepath.Join(locks, "vdpa-v"), []byte("/run/netns/theirs"), 0o600)) // not named by a PCI address
	must(t, j.Forget(record(t, j, &journal.Entry{Key: key1, Leases: has("vdpa-v", journal.Exclusive)})))
	must(t, os.Remove(filepath.Join(locks, "0000:01:10.0")), os.Mkdir(filepath.Join(locks, "0000:01:10.0"), 0o700))
	err := tryRecord(t, j, &journal.Entry{Key: key1, Leases: has("pci-0000:01:10.0", journal.Exclusive)})
	difftest.Says(t, err, "cannot read the locks of sriov-cni")
}

// A directory or a file that is missing means that sriov-cni is not installed, or has removed a lock.
func TestLockedBySRIOVReturnsLiveLocks(t *testing.T) {
	files := fstest.MapFS{
		"0000:01:10.0": {Data: []byte("/var/run/netns/a\n")}, "0000:01:10.2": {Data: []byte("/var/run/netns/gone")},
		"notes": {Data: []byte("/var/run/netns/a")}, "0000:01:10.4": {Mode: fs.ModeDir},
	}
	live := map[string]string{"0000:01:10.0": "sriov-cni has allocated it to network namespace /var/run/netns/a"}
	for _, c := range []struct {
		failing string
		by      error
		want    map[string]string // nil = the error
	}{
		{"", nil, live}, {".", fs.ErrNotExist, map[string]string{}}, {"0000:01:10.0", fs.ErrNotExist, map[string]string{}}, {".", syscall.EIO, nil}, {"0000:01:10.0", syscall.EIO, nil},
	} {
		dir := capturetest.Tree{FS: files, BeforeCall: func(name string) error { return map[string]error{c.failing: c.by}[name] }}
		got, err := journal.LockedBySRIOV(dir, func(netns string) (bool, error) { return strings.HasSuffix(netns, "gone"), nil })
		if c.want == nil {
			difftest.Is(t, err, c.by)
			continue
		}
		must(t, err)
		difftest.Same(t, fmt.Sprint(c), got, c.want)
	}
}

// CRI-O removes the path of a network namespace before cni-dra-driver gets to know that the sandbox has ended. The driver
// then holds the namespace open until its DEL has ended, and nobody may take the attachment for gone meanwhile.
func TestAttachmentByClaimIsGoneWhenTheDriverHasNoDelToRun(t *testing.T) {
	const netns, others = "/run/netns/s1", "/run/netns/s2"
	claim := func(phase state.Phase, boot, netns string) string {
		list, undeleted := "attachments", "undeleted"
		if phase == state.Undeleted {
			list, undeleted = undeleted, list
		}
		return fmt.Sprintf(`{"schema": 1, "uid": "u1", %q: [{"request": "r", "ifName": "net1", "list": {}, "sandbox": "c1", "phase": %q, "bootID": %q, "netns": %q}]}`, list, phase, boot, netns)
	}
	type files = map[string]string
	one := func(phase state.Phase) files { return files{"u1.json": claim(phase, boot, netns)} }
	for name, test := range map[string]struct {
		records files // nil = the directory is missing
		gone    bool
	}{
		"the driver is not installed":      {nil, true},
		"no record":                        {files{}, true},
		"ADD runs":                         {one(state.Adding), false},
		"attached":                         {one(state.Added), false},
		"DEL runs or is repeated":          {one(state.Deleting), false},
		"DEL has ended":                    {one(state.Restoring), true},
		"DEL was given up":                 {one(state.Undeleted), true},
		"of another boot":                  {files{"u1.json": claim(state.Added, "earlier", netns)}, true},
		"of another sandbox":               {files{"u1.json": claim(state.Added, boot, others)}, true},
		"an unreadable record":             {files{"u2.json": "{", "offer": "x"}, false},
		"an unreadable record and its own": {files{"a.json": "{", "u1.json": claim(state.Added, boot, netns)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			j, dir := open(t)
			j.SRIOVLocks = filepath.Join(dir, "sriov")
			claims := filepath.Join(t.TempDir(), "plugins/driver/state")
			must(t, os.MkdirAll(filepath.Dir(filepath.Dir(claims)), 0o700), j.EnsureDir(), state.Announce(dir, "/elsewhere"), state.Announce(dir, claims))
			for file, text := range test.records {
				difftest.Write(t, filepath.Join(claims, file), text, 0o600)
			}
			by := &journal.Entry{Key: key1, Netns: netns, Args: pod.ClaimArg + "=net", Leases: has("pci-vf", journal.Exclusive)}
			record(t, j, by)
			j.NetnsGone = func(path string) (bool, error) { return false, nil }
			why, err := j.Stale(by)
			difftest.Same(t, "of a namespace that is there", []any{why, err}, []any{"", nil})
			j.NetnsGone = func(path string) (bool, error) { return true, nil }
			why, err = j.Stale(by)
			difftest.Same(t, fmt.Sprintf("gone: %q, %v", why, err), why != "" && err == nil, test.gone)
			difftest.Same(t, "the device is free", j.Free(&journal.Entry{Key: key2, Leases: has("pci-vf", journal.Exclusive)}) == nil, test.gone)
			difftest.Write(t, filepath.Join(j.SRIOVLocks, "0000:01:10.0"), netns, 0o600)
			locked := j.Free(&journal.Entry{Key: key2, Leases: has("pci-0000:01:10.0", journal.Exclusive)})
			difftest.Same(t, fmt.Sprint("sriov-cni's lock counts: ", locked), locked != nil, !test.gone)

			plain := *by
			plain.Args = ""
			why, err = j.Stale(&plain)
			difftest.Same(t, fmt.Sprintf("gone without a claim: %q, %v", why, err), why != "" && err == nil, true)

			must(t, state.Announce(dir, filepath.Join(t.TempDir(), "unmounted/driver/state")))
			_, err = j.Stale(by)
			difftest.Is(t, err, journal.ErrDelPending)
		})
	}
}
