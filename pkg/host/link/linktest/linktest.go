// Package linktest runs tests in network namespaces with real interfaces, as root and as an ordinary user.
//
// Each kernel that tests run on has veth, bridge, macvlan, macvtap and tap. Some lack dummy, vlan, ipvlan or bond.
package linktest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/difftest"
)

const (
	child = "DEVINFO_LINKTEST_CHILD" // name of the test that the process runs
	must  = "DEVINFO_NETNS"          // "must": tests fail instead of being skipped without namespaces
)

// Run calls f as root in new network and mount namespaces. For an ordinary user it also creates a user namespace. It
// executes the test binary again for this test, so the part of the test before Run runs twice.
//
// In the namespaces, /run is an empty tmpfs, /sys is the /sys of the host, and the only interface is lo, which is
// down. Mounts do not propagate out. If namespaces are not permitted, the test is skipped, or fails if the environment
// has DEVINFO_NETNS=must. With -short it is skipped.
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	run(t, 0, f)
}

// RunAlone is like [Run], but the test has its own PID namespace and /proc too, where it sees no other processes.
func RunAlone(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	run(t, unix.CLONE_NEWPID, f)
}

func run(t *testing.T, more uintptr, f func(t *testing.T)) {
	t.Helper()
	if testing.Short() { // the child runs without -short
		t.Skip("-short: the test needs its own namespaces")
	}
	switch os.Getenv(child) {
	case t.Name():
	case "":
		runChild(t, more)
		return
	default: // its child would run the test around it, which would start the next child
		t.Fatalf("%s is in its own namespaces, and runs %s: Run cannot be nested", os.Getenv(child), t.Name())
	}
	if err := setUp(more == unix.CLONE_NEWPID); err != nil {
		unavailable(t, err)
	}
	f(t)
}

func setUp(alone bool) error {
	// otherwise mounts of root would propagate out of the namespace
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	if alone {
		return unix.Mount("proc", "/proc", "proc", 0, "")
	}
	return nil
}

// unavailable skips or fails a test that cannot have namespaces.
func unavailable(t *testing.T, err error) {
	t.Helper()
	for _, no := range []error{
		syscall.EPERM, syscall.EACCES, // in containers, or with kernel.apparmor_restrict_unprivileged_userns
		syscall.EINVAL, // on a kernel without CONFIG_USER_NS
		syscall.ENOSPC, // at the limit user.max_user_namespaces
	} {
		if errors.Is(err, no) && os.Getenv(must) != "must" {
			t.Skipf("no namespaces: %v", err)
		}
	}
	t.Fatalf("no namespaces: %v", err)
}

func runChild(t *testing.T, more uintptr) {
	t.Helper()
	// The kernel sends the death signal when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run="+pattern(t.Name()))
	if deadline, ok := t.Deadline(); ok {
		cmd.Args = append(cmd.Args, fmt.Sprint("-test.timeout=", time.Until(deadline)*9/10))
	}
	cmd.Env = append(os.Environ(), child+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | more,
		Pdeathsig:  syscall.SIGKILL,
	}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		unavailable(t, err)
	}
	t.Output().Write(framing.ReplaceAll(out, nil))
	verdict := regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): ` + regexp.QuoteMeta(t.Name()) + ` \(`).FindSubmatch(out)
	switch {
	case err != nil:
		t.Fatalf("in its own namespaces: %v", err)
	case verdict == nil:
		t.Fatalf("its own process finds no test by %s", pattern(t.Name()))
	case string(verdict[1]) == "SKIP":
		t.SkipNow()
	}
}

// framing matches lines that "go test" would take for results of its own tests.
var framing = regexp.MustCompile(`(?m)^(\s*(===|---) .*|PASS|FAIL|ok|coverage:.*)$\n?`)

// pattern returns a -test.run pattern for one test or subtest.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

const current = "/proc/thread-self/ns/net"

// NeedsMachine fails a test outside the machine of test/vm, or if a part of the machine is missing.
func NeedsMachine(t *testing.T, setups ...string) {
	t.Helper()
	if os.Getenv("DEVINFO_VM") == "" {
		t.Fatal("this test changes devices: it runs in the machine of test/vm only, by test/vm/test")
	}
	for _, s := range setups {
		if !slices.Contains(strings.Fields(os.Getenv("DEVINFO_VM_HAVE")), s) {
			t.Fatalf("the machine has no %s", s)
		}
	}
}

// EachOpenFailure calls functions again and again, each time with one more file or socket that the process may open, until
// they return the error or nil as without a limit. Until then they must return the error of the open that failed, and
// leave nothing open. Use it inside Run.
func EachOpenFailure(t testing.TB, functions map[string]func() error) {
	t.Helper()
	free := func() int { // the lowest number of a file
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		difftest.Must(t, err, unix.Close(fd))
		return fd
	}
	var limit unix.Rlimit
	difftest.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	for what, f := range functions {
		want, before := fmt.Sprint(f()), free()
		for n, got := 0, ""; got != want; n++ {
			difftest.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(before + n), Max: limit.Max}))
			got = fmt.Sprint(f())
			difftest.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
			if failed := strings.Contains(got, unix.EMFILE.Error()); failed == (got == want) || n == 0 && !failed || free() != before {
				t.Errorf("%s: with %d files: %s, and the next file is %d, before %d", what, n, got, free(), before)
				break
			}
		}
	}
}

// Message returns a netlink message of a header and attributes.
func Message(header []byte, attrs ...*nl.RtAttr) []byte {
	for _, a := range attrs {
		header = append(header, a.Serialize()...)
	}
	return header
}

// NewNetns creates a network namespace for the duration of the test, and returns its path. It contains only lo,
// which is down. Use it inside Run.
func NewNetns(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netns")
	difftest.Must(t, MakeNetns(path))
	t.Cleanup(func() { difftest.Must(t, unix.Unmount(path, unix.MNT_DETACH)) })
	return path
}

// MakeNetns creates a network namespace and mounts it on a new file at path.
func MakeNetns(path string) error {
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o444)); err != nil {
		return err
	}
	return elsewhere(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() error { return unix.Mount(current, path, "", unix.MS_BIND, "") })
}

// InNetns calls f in the network namespace at path, or in the current one if path is "". It calls f in the caller's
// goroutine, so that f may end the test. Goroutines that f starts are not in the namespace.
func InNetns(path string, f func() error) (err error) {
	if path == "" {
		return f()
	}
	there, err := os.Open(path)
	if err != nil {
		return err
	}
	defer there.Close()
	return elsewhere(func() error { return unix.Setns(int(there.Fd()), unix.CLONE_NEWNET) }, f)
}

// elsewhere calls f on a thread that enter has moved to another network namespace, and moves the thread back.
func elsewhere(enter, f func() error) (err error) {
	runtime.LockOSThread()
	here, err := os.Open(current)
	if err == nil {
		defer here.Close()
		err = enter()
	}
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	defer func() {
		if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
			err = errors.Join(err, back) // the thread stays locked and ends with the test
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// AddVeth creates a veth pair: name in the current network namespace, and peer in the one at netns. Both are up.
func AddVeth(t testing.TB, name, peer, netns string) {
	t.Helper()
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: peer}
	veth.Name = name
	inside := open(t, netns)
	veth.PeerNamespace = netlink.NsFd(inside.Fd())
	difftest.Must(t, netlink.LinkAdd(veth))
	up(t, name, "")
	up(t, peer, netns)
}

// AddMacvlan creates a macvlan in bridge mode on parent, which is in the current network namespace. name is in the
// one at netns, and up.
func AddMacvlan(t testing.TB, parent, name, netns string) {
	t.Helper()
	lower, err := netlink.LinkByName(parent)
	difftest.Must(t, err)
	macvlan := &netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_BRIDGE}
	macvlan.Name = name
	macvlan.ParentIndex = lower.Attrs().Index
	inside := open(t, netns)
	macvlan.Namespace = netlink.NsFd(inside.Fd())
	difftest.Must(t, netlink.LinkAdd(macvlan))
	up(t, name, netns)
}

func open(t testing.TB, netns string) *os.File {
	t.Helper()
	f, err := os.Open(netns)
	difftest.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func up(t testing.TB, name, netns string) {
	t.Helper()
	difftest.Must(t, InNetns(netns, func() error { return netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: name}}) }))
}
