package link_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

func TestCheckNetnsRecognizesNetns(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		if _, err := link.NetnsGone("/run/netns/none"); err == nil || !strings.Contains(err.Error(), "/run/netns, where ADD found") {
			t.Errorf("without its directory: %v", err)
		}
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		must(t, os.WriteFile(at("unmounted"), nil, 0o444))
		must(t, unix.Mount(linktest.NewNetns(t), at("unmounted"), "", unix.MS_BIND, ""))
		if err := link.CheckNetns(at("unmounted")); err != nil {
			t.Errorf("mounted: %v", err)
		}
		must(t, unix.Unmount(at("unmounted"), 0))
		must(t, os.Symlink("/proc/self/ns/net", at("link")))
		must(t, os.Symlink(at("absent"), at("dangling")))
		must(t, os.Symlink("loop", at("loop")))
		for path, want := range map[string]struct {
			there bool
			err   error // error of CheckNetns
		}{
			linktest.NewNetns(t): {true, nil}, "/proc/self/ns/net": {true, nil}, "/proc/thread-self/ns/net": {true, nil}, at("link"): {true, nil},
			at("unmounted"): {false, link.ErrNoNetns}, dir: {false, link.ErrNoNetns}, "/proc/self/status": {false, link.ErrNoNetns},
			at("absent"): {false, fs.ErrNotExist}, at("dangling"): {false, fs.ErrNotExist}, "/proc/0/ns/net": {false, fs.ErrNotExist}, "": {false, fs.ErrNotExist},
			at("unmounted/below"): {false, unix.ENOTDIR},
			at("loop"):            {false, unix.ELOOP}, at(strings.Repeat("x", 300)): {false, unix.ENAMETOOLONG},
		} {
			err := link.CheckNetns(path)
			if !errors.Is(err, want.err) || err != nil && !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", path, err)
			}
			broken := errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENAMETOOLONG)
			if gone := errors.Is(err, link.ErrNoNetns); gone != (!want.there && !broken) {
				t.Errorf("%s is gone: %v, %v", path, gone, err)
			}
			if gone, err := link.NetnsGone(path); (want.there || broken) && (gone || (err != nil) != broken) {
				t.Errorf("%s is gone for good: %v, %v", path, gone, err)
			}
			if inode := link.NetnsInode(path); want.there && inode == 0 || errors.Is(want.err, fs.ErrNotExist) && inode != 0 {
				t.Errorf("%s has inode %d", path, inode)
			}
		}
	})
}

func TestNetnsNamesProcessRecognizesProcPaths(t *testing.T) {
	dir := t.TempDir()
	for name, target := range map[string]string{
		"docker": "/proc/4711/ns/net", "twice": "docker", "cni-1": "/var/run/netns/cni-1", "loop": "loop", "up": "../../../../../../proc/self/ns/net",
	} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	for path, want := range map[string]bool{
		"/proc/4711/ns/net": true, "/proc/4711/task/4712/ns/net": true, "/proc/self/ns/net": true, "/proc/thread-self/ns/net": true,
		"//proc/./4711/ns/../ns/net": true, "/host/proc/4711/ns/net": true, "/proc/4711/root/run/netns/x": true, "/proc/4711/fd/5": true,
		dir + "/docker": true, dir + "/twice": true, dir + "/up": true,
		"/var/run/netns/4711": false, "/run/proc/x/ns/net": false, "/proc/4711": false, "/proc/a/ns/net": false, "/proc": false, "": false,
		dir + "/cni-1": false, dir + "/loop": false, dir + "/none": false,
	} {
		difftest.Same(t, path, link.NetnsNamesProcess(path), want)
	}
}

func TestSeesMountsDependsOnPropagation(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		must(t, os.WriteFile("/run/file", nil, 0o644))
		for _, test := range []struct {
			propagation uintptr
			want        bool
		}{{unix.MS_PRIVATE, false}, {unix.MS_SHARED, true}, {unix.MS_PRIVATE, false}, {unix.MS_UNBINDABLE, false}} {
			must(t, unix.Mount("", "/run", "", test.propagation, ""))
			for _, path := range []string{"/run", "/run/file"} {
				if got, err := link.SeesMounts(path); got != test.want || err != nil {
					t.Errorf("%s, propagation %#x: %v, %v", path, test.propagation, got, err)
				}
			}
			if gone, err := link.NetnsGone("/run/file"); gone != test.want || (err == nil) != test.want {
				t.Errorf("a plain file, propagation %#x: %v, %v", test.propagation, gone, err)
			}
		}
		_, err := link.SeesMounts("/run/none")
		difftest.Is(t, err, fs.ErrNotExist)
		difftest.Says(t, err, "/run/none")
		if gone, err := link.NetnsGone("/run/none"); !gone || err != nil {
			t.Errorf("nothing is there: %v, %v", gone, err)
		}
		must(t, errors.Join( // a slave mount, as in a container with HostToContainer propagation
			unix.Mount("", "/run", "", unix.MS_SHARED, ""), os.Mkdir("/run/slave", 0o755),
			unix.Mount("/run", "/run/slave", "", unix.MS_BIND, ""), unix.Mount("", "/run/slave", "", unix.MS_SLAVE, ""),
		))
		if got, err := link.SeesMounts("/run/slave"); !got || err != nil {
			t.Errorf("of a master: %v, %v", got, err)
		}
	})
}

// In a PID namespace, the processes of the host are not visible.
func TestNetnsOfEndedProcessIsGoneIfProcessesAreVisible(t *testing.T) {
	const gone, nested = "/proc/4194999/ns/net", "DEVINFO_NESTED"
	if os.Getenv(nested) != "" {
		if is, err := link.NetnsGone(gone); is || err == nil || !strings.Contains(err.Error(), "hostPID") {
			t.Errorf("got %v, %v", is, err)
		}
		return
	}
	linktest.Run(t, func(t *testing.T) {
		if ours, err := os.Readlink("/proc/self/ns/pid"); err != nil || ours != "pid:[4026531836]" {
			t.Skipf("the test runs in a PID namespace: %s, %v", ours, err)
		}
		if is, err := link.NetnsGone(gone); !is || err != nil {
			t.Errorf("in the initial PID namespace: %v, %v", is, err)
		}
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), nested+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// A container's mount of a removed directory stays empty, while the node has its network namespaces in a new one.
func TestNetnsIsNotGoneIfItsDirectoryWasRemoved(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir, mount := filepath.Join(t.TempDir(), "netns"), t.TempDir()
		must(t, os.Mkdir(dir, 0o755))
		must(t, unix.Mount(dir, mount, "", unix.MS_BIND, ""))
		defer func() { must(t, unix.Unmount(mount, 0)) }()
		for _, removed := range []bool{false, true} {
			if gone, err := link.NetnsGone(mount + "/cni-1"); gone == removed || (err != nil) != removed {
				t.Errorf("directory removed: %v: got %v, %v", removed, gone, err)
			}
			must(t, os.RemoveAll(dir), os.Mkdir(dir, 0o755))
		}
		must(t, os.Symlink("/nowhere", dir+"/link"))
		if gone, err := link.NetnsGone(dir + "/link/cni-1"); gone || err == nil {
			t.Errorf("directory is a link to nothing: %v, %v", gone, err)
		}
	})
}

func TestNetnsIsNotGoneWithoutProc(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		must(t, unix.Mount("tmpfs", "/proc", "tmpfs", 0, ""))
		must(t, os.WriteFile("/run/file", nil, 0o644))
		for _, path := range []string{"/proc/4194999/ns/net", "/run/file"} {
			if is, err := link.NetnsGone(path); is || err == nil {
				t.Errorf("%s: %v, %v", path, is, err)
			}
		}
		if is, err := link.IsOwnNetns("/proc"); is || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, %v", is, err)
		}
	})
}

// The lower interface may be in the current network namespace, in the pod's, or in a third one.
func TestLowerIsFoundInAnyNamespace(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		here, pod, third := "/proc/thread-self/ns/net", linktest.NewNetns(t), linktest.NewNetns(t)
		for n, of := range []string{here, pod, third} {
			name, nic := fmt.Sprint("net", n), fmt.Sprint("nic", n)
			linktest.AddVeth(t, fmt.Sprint("peer", n), nic, of)
			must(t, linktest.InNetns(of, func() error {
				linktest.AddMacvlan(t, nic, name, pod)
				return nil
			}))
			if of == third { // its bus_info is not that of the lower interface
				must(t, linktest.InNetns(pod, func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: nic}}) }))
			}
			want := link.Interface{Name: name, Kind: "macvlan", Lower: &link.Interface{Name: nic, Kind: "veth"}}
			equal(t, read(t, pod, name), want)
			if of == pod { // the pod's namespace can also be the current one
				must(t, linktest.InNetns(pod, func() error {
					equal(t, read(t, "", name), want)
					return nil
				}))
			}
		}
	})
}

// An index is unique in its network namespace only. Here, an unrelated interface in the pod has the same index as the
// lower interface.
func TestLowerIsNotConfusedWithSameIndex(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod, other := linktest.NewNetns(t), linktest.NewNetns(t)
		must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "nic", Index: 77}}))
		must(t, linktest.InNetns(pod, func() error {
			return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bystander", Index: 77}})
		}))
		linktest.AddMacvlan(t, "nic", "net1", pod)
		linktest.AddMacvlan(t, "nic", "net2", other)
		want := link.Interface{Name: "net1", Kind: "macvlan", Lower: &link.Interface{Name: "nic", Kind: "bridge", BusInfo: "N/A"}}
		equal(t, read(t, pod, "net1"), want)
		want.Name = "net2"
		equal(t, read(t, other, "net2"), want)
	})
}

func TestLowerOfStackedInterfaces(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod, other := linktest.NewNetns(t), linktest.NewNetns(t)
		linktest.AddVeth(t, "nic", "peer", other)
		nic, err := netlink.LinkByName("nic")
		must(t, err)
		err = netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "nic.7", ParentIndex: nic.Attrs().Index}, VlanId: 7})
		if errors.Is(err, syscall.EOPNOTSUPP) {
			t.Skip("the kernel has no vlan")
		}
		must(t, err)
		linktest.AddMacvlan(t, "nic.7", "net1", pod)
		equal(t, read(t, pod, "net1"), link.Interface{
			Name: "net1", Kind: "macvlan", Lower: &link.Interface{
				Name: "nic.7", Kind: "vlan", Lower: &link.Interface{
					Name: "nic", Kind: "veth"}}})
	})
}
