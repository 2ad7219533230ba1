// Package linktest runs tests in network namespaces with real interfaces, as root and as an ordinary user.
//
// Each kernel that tests run on has veth, bridge, macvlan, macvtap and tap. Some lack dummy, vlan, ipvlan or bond.
package linktest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	if testing.Short() { // the child runs without -short
		t.Skip("-short: the test needs its own namespaces")
	}
	if os.Getenv(child) != t.Name() {
		runChild(t)
		return
	}
	if err := setUp(); err != nil {
		unavailable(t, err)
	}
	f(t)
}

func setUp() error {
	// otherwise mounts of root would propagate out of the namespace
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
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

func runChild(t *testing.T) {
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
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		unavailable(t, err)
	}
	skipped := report(t, out)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("in its own namespaces: %v", err)
	}
	if skipped {
		t.SkipNow()
	}
}

// report prints the output of the child, and returns whether it skipped the test.
func report(t *testing.T, out io.Reader) (skipped bool) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if strings.HasPrefix(strings.TrimSpace(line), "--- SKIP: "+t.Name()+" ") {
			skipped = true
		}
		if !framing.MatchString(strings.TrimSuffix(line, "\n")) {
			io.WriteString(t.Output(), line)
		}
		if err != nil {
			return skipped
		}
	}
}

// framing matches lines that "go test" would take for results of its own tests.
var framing = regexp.MustCompile(`^(\s*(===|---) |(PASS|FAIL|ok|coverage:.*)$)`)

// pattern returns a -test.run pattern for one test or subtest.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}
