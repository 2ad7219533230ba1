// Package sandbox runs the rest of a program in its own namespaces. Mounts, files below /run and /var/lib, network
// namespaces and their interfaces disappear when the program ends in any way.
//
// It is for benchmarks. Tests use linktest.Run.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bin is the directory of the programs in the sandbox.
const Bin = "/run/devinfo/bin"

const inside = "DEVINFO_SANDBOX" // "root" or "user"

// init locks main to the first thread, for two reasons. The death signal of a child arrives when the thread that
// started it ends, and a network namespace belongs to a thread.
func init() { runtime.LockOSThread() }

// Run calls f as root of a new mount namespace, and then exits with f's error. For an ordinary user it also creates a
// user namespace and a network namespace without the machine's interfaces; ownNet is then true. /run and /var/lib are
// empty tmpfs mounts, and [Bin] contains the programs of bin. A signal that ends the program also ends f.
func Run(bin string, f func(ownNet bool) error) {
	as := os.Getenv(inside)
	if as == "" {
		os.Exit(outside())
	}
	err := setUp(bin)
	if err == nil {
		err = f(as == "user")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
	os.Exit(0)
}

// outside starts the program again in the sandbox, and waits.
func outside() int {
	cmd, err := start("root", unix.CLONE_NEWNS)
	if os.Geteuid() != 0 || errors.Is(err, unix.EPERM) {
		cmd, err = start("user", unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWUSER)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: no namespaces to run in: %v\n", filepath.Base(os.Args[0]), err)
		return 1
	}
	_ = cmd.Wait() // the exit code is checked instead
	code := cmd.ProcessState.ExitCode()
	return max(code, -code) // -1 = killed
}

func start(as string, flags uintptr) (*exec.Cmd, error) {
	if as == "root" && os.Geteuid() != 0 {
		return nil, unix.EPERM
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"="+as)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: unix.SIGKILL}
	if as == "user" {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return cmd, cmd.Start()
}

func setUp(bin string) error {
	programs, err := os.Open(bin)
	if err != nil {
		return err
	}
	defer programs.Close()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range []string{"/run", "/var/lib"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := os.MkdirAll(Bin, 0o755); err != nil {
		return err
	}
	from := fmt.Sprintf("/proc/self/fd/%d", programs.Fd()) // the path of bin may be hidden by the mounts
	if err := unix.Mount(from, Bin, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", Bin, err)
	}
	return nil
}

// Leave moves the main thread, and programs that it starts later, to a new network namespace.
func Leave() error { return unix.Unshare(unix.CLONE_NEWNET) }
