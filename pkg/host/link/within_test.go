package link

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

func current(t *testing.T) (netns string) {
	t.Helper()
	netns, err := os.Readlink(ourNetns)
	difftest.Must(t, err)
	return netns
}

func TestWithinReturnsErrorOfFunctionUnchanged(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod := linktest.NewNetns(t)
		here, there := current(t), ""
		difftest.Must(t, linktest.InNetns(pod, func() error { there = current(t); return nil }))
		for path, want := range map[string]string{"": here, "/proc/self/ns/net": here, pod: there} {
			for _, result := range []error{nil, &fs.PathError{Op: "bind", Path: "x", Err: syscall.EPERM}} {
				in := ""
				err := Within(path, func() error {
					in = current(t)
					return result
				})
				if err != result || in != want {
					t.Errorf("%q: in %s, error %v, want %s, %v", path, in, err, want, result)
				}
			}
			difftest.Equal(t, current(t), here)
		}
		for range 100 { // f may wait, and other goroutines run meanwhile
			difftest.Must(t, Elsewhere(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() error {
				in := current(t)
				for range 5 {
					other := make(chan string)
					go func() { netns, _ := os.Readlink(ourNetns); other <- netns }()
					if netns, now := <-other, current(t); netns != here || now != in || in == here {
						t.Errorf("f is in %s, then in %s, and another goroutine in %s", in, now, netns)
					}
				}
				return nil
			}))
		}
		threads, err := filepath.Glob("/proc/self/task/*/ns/net") // one that stays in a namespace keeps it, and a VF in it
		if err != nil || len(threads) == 0 {
			t.Errorf("%d threads, %v", len(threads), err)
		}
		for _, thread := range threads {
			if now, err := os.Readlink(thread); err == nil && now != here {
				t.Errorf("%s stays in %s", thread, now)
			}
		}
	})
}

func TestPathThatIsNotNetnsIsErrNoNetns(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		plain, fifo, gone := filepath.Join(dir, "plain"), filepath.Join(dir, "fifo"), linktest.NewNetns(t)
		difftest.Must(t, os.WriteFile(plain, nil, 0o644), unix.Mkfifo(fifo, 0o644), CheckNetns(gone),
			unix.Unmount(gone, unix.MNT_DETACH)) // between the check and the entry
		defer unix.Mount(ourNetns, gone, "", unix.MS_BIND, "") // for NewNetns, which unmounts it
		for path, why := range map[string]error{
			plain: nil, dir: nil, fifo: nil, gone: nil, "/proc/self/status": nil, "/proc": nil,
			"/proc/self/ns/mnt": syscall.EINVAL, plain + "/below": syscall.ENOTDIR, plain + "-absent": fs.ErrNotExist, "/proc/0/ns/net": fs.ErrNotExist,
		} {
			err := Within(path, func() error { t.Errorf("%s is entered", path); return nil })
			if !errors.Is(err, ErrNoNetns) || why != nil && !errors.Is(err, why) {
				t.Errorf("%s: %v", path, err)
			}
			_, err = NewKernel(os.DirFS("/sys")).Interface(path, "lo")
			if !errors.Is(err, ErrNoNetns) || errors.Is(err, ErrNoInterface) || strings.Count(err.Error(), path) != 1 {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
}

// setns(2) needs CAP_SYS_ADMIN even for the current network namespace.
func TestProcessWithoutPrivilegeEntersOnlyItsOwnNetns(t *testing.T) {
	const confined, own = "DEVINFO_POD", "/run/own"
	if pod := os.Getenv(confined); pod != "" {
		for _, path := range []string{"", "/proc/self/ns/net", own} {
			if err := Within(path, func() error { return nil }); err != nil {
				t.Errorf("own namespace %q: %v", path, err)
			}
		}
		err := Within(pod, func() error { t.Error("the pod's namespace is entered"); return nil })
		if !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrNoNetns) {
			t.Errorf("the pod's namespace: %v", err)
		}
		return
	}
	linktest.Run(t, func(t *testing.T) {
		difftest.Must(t, os.WriteFile(own, nil, 0o444), unix.Mount(ourNetns, own, "", unix.MS_BIND, ""))
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), confined+"="+linktest.NewNetns(t))
		runtime.LockOSThread() // until the test ends: the thread keeps the smaller set
		difftest.Must(t, unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
