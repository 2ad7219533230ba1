// Package linktest gives tests network namespaces of their own, with real
// interfaces in them, as root and as an ordinary user.
//
// Veth, bridge, macvlan, macvtap and tap are on every kernel that tests run on;
// dummy, vlan, ipvlan and bond may be missing.
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
	child = "DEVINFO_LINKTEST_CHILD" // the test that a process was started for
	must  = "DEVINFO_NETNS"          // "must": fail, and do not skip, without namespaces
)

// Run calls f as root of new network and mount namespaces, and for an ordinary
// user of a user namespace. It executes the test binary again for this one
// test, so what comes before Run in the test runs twice.
//
// There is an empty tmpfs at /run, no mount gets out, and only lo exists, down;
// /sys still is the host's. Where namespaces are not permitted, the test is
// skipped, or fails if the environment has DEVINFO_NETNS=must. With -short it is skipped.
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if testing.Short() { // the child is not told
		t.Skip("-short: it takes namespaces of its own")
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
	// A new mount namespace of root's would pass its mounts on.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return nil
}

// unavailable ends a test that cannot have namespaces.
func unavailable(t *testing.T, err error) {
	t.Helper()
	for _, no := range []error{
		syscall.EPERM, syscall.EACCES, // containers, kernel.apparmor_restrict_unprivileged_userns
		syscall.EINVAL, // no CONFIG_USER_NS
		syscall.ENOSPC, // user.max_user_namespaces
	} {
		if errors.Is(err, no) && os.Getenv(must) != "must" {
			t.Skipf("no namespaces: %v", err)
		}
	}
	t.Fatalf("no namespaces: %v", err)
}

func runChild(t *testing.T) {
	t.Helper()
	// The death signal comes when the thread that started the child ends.
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
		t.Fatalf("in namespaces of its own: %v", err)
	}
	if skipped {
		t.SkipNow()
	}
}

// report passes the output of the child on, and says whether it skipped the test.
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

// framing is what "go test" would take for a report on a test of its own.
var framing = regexp.MustCompile(`^(\s*(===|---) |(PASS|FAIL|ok|coverage:.*)$)`)

// pattern matches the one test or subtest of that name.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}
