package process_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/process"
	"devinfo-cni.io/test/difftest"
)

var full = []string{"1:7"} // /dev/full

// Most threads share the descriptors of their process, which is found once.
func TestThreadWithDescriptorsOfItsOwnIsFound(t *testing.T) {
	pid := uintptr(os.Getpid())
	if _, _, errno := unix.Syscall6(unix.SYS_KCMP, pid, pid, 0, 0, 0, 0); errno != 0 {
		t.Skip("kcmp(2): ", errno)
	}
	file, err := os.Open("/dev/full")
	difftest.Must(t, err)
	defer file.Close()
	alone := []string{fmt.Sprint(pid), thread(t, unix.CLONE_FILES)}
	found, err := process.Opened("/proc", full)
	difftest.Must(t, err)
	tasks, err := os.ReadDir("/proc/self/task")
	difftest.Must(t, err)
	for _, task := range tasks {
		is := slices.ContainsFunc(found, func(h process.Holder) bool { return fmt.Sprint(h.PID) == task.Name() })
		if is != slices.Contains(alone, task.Name()) {
			t.Errorf("thread %s is found: %v; only %v have descriptors of their own", task.Name(), is, alone)
		}
	}
}

// thread starts a thread that shares less with the process, and returns its number.
func thread(t *testing.T, unshared int) string {
	t.Helper()
	started, ends := make(chan error), make(chan bool)
	t.Cleanup(func() { close(ends) })
	tid := 0
	var start func()
	start = func() {
		runtime.LockOSThread()
		if tid = unix.Gettid(); tid == os.Getpid() { // the first thread, which the others are compared with
			go start()
			<-ends
			runtime.UnlockOSThread()
			return
		}
		started <- unix.Unshare(unshared) // and the thread ends with the function
		<-ends
	}
	go start()
	difftest.Must(t, <-started)
	return fmt.Sprint(tid)
}

// A directory in the place of a file, and a file in that of a directory, are errors of a read for root too. A process that
// has ended, or that this one may not read, is none.
func TestProcessThatCannotBeReadIsAnError(t *testing.T) {
	broken := map[string]func(process string) error{
		"fd":        func(p string) error { return os.WriteFile(p+"/fd", nil, 0o600) },
		"task":      func(p string) error { return os.WriteFile(p+"/task", nil, 0o600) },
		"mountinfo": func(p string) error { return os.Mkdir(p+"/mountinfo", 0o700) },
		"ns/mnt":    func(p string) error { return errors.Join(os.Remove(p+"/ns/mnt"), os.Mkdir(p+"/ns/mnt", 0o700)) },
		"thread":    func(p string) error { return os.MkdirAll(p+"/task/8/ns/mnt", 0o700) },
		"ended":     func(p string) error { return os.RemoveAll(p + "/ns") },
		"ending":    func(p string) error { return os.Symlink("/sys/class/net/lo/speed", p+"/mountinfo") }, // EINVAL
		"proc":      func(p string) error { return os.RemoveAll(filepath.Dir(p)) },
	}
	if _, err := os.ReadFile("/sys/class/net/lo/speed"); !errors.Is(err, unix.EINVAL) {
		delete(broken, "ending")
	}
	for what, breaks := range broken {
		proc := t.TempDir()
		difftest.Must(t, os.MkdirAll(proc+"/7/ns", 0o700), os.Symlink("mnt:[1]", proc+"/7/ns/mnt"), breaks(proc+"/7"))
		_, opened := process.Opened(proc, full)
		_, namespaces := process.Namespaces(proc)
		files := what == "fd" || what == "task" || what == "proc"
		if (opened != nil) != files || (namespaces != nil) == strings.HasPrefix(what, "end") {
			t.Errorf("%s: %v, %v", what, opened, namespaces)
		}
	}
}

// A process whose mounts cannot be compared with the node's may be that of a pod.
func TestHolderIsOfPodUnlessItHasMountsOfNode(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	proc := t.TempDir()
	for pid, files := range map[string]map[string]string{
		"1":  {"ns/mnt": "mnt:[1]", "fd/3": "/dev/null"},
		"7":  {"ns/mnt": "mnt:[1]", "fd/3": "/dev/full", "fd/4": "/dev/full"},
		"8":  {"ns/mnt": "mnt:[2]", "fd/3": "/dev/null", "fd/4": "/dev/full"},
		"10": {"fd/3": "/dev/full"},
		"11": {"fd/3": "/etc/passwd", "fd/4": "/none"},
	} {
		difftest.Must(t, os.MkdirAll(proc+"/"+pid+"/fd", 0o700), os.Mkdir(proc+"/"+pid+"/ns", 0o700), os.WriteFile(proc+"/"+pid+"/comm", []byte("sh\n"), 0o600))
		for name, target := range files {
			difftest.Must(t, os.Symlink(target, proc+"/"+pid+"/"+name))
		}
	}
	found, err := process.Opened(proc, append(full, "0:0")) // of files that are no device nodes
	difftest.Must(t, err)
	difftest.Equal(t, found, []process.Holder{{7, "sh", false}, {8, "sh", true}, {10, "sh", true}})
	difftest.Must(t, os.Remove(proc+"/1/ns/mnt"))
	found, err = process.Opened(proc, full)
	if err != nil || len(found) != 3 || !found[0].Pod || !found[2].Pod {
		t.Errorf("without the mounts of the node: %+v, %v", found, err)
	}
}

// A namespace may be kept by a mount alone, whose path mountinfo escapes.
func TestMountedNamespaceIsFound(t *testing.T) {
	proc := t.TempDir()
	difftest.Must(t, os.MkdirAll(proc+"/7/ns", 0o700), os.Symlink("mnt:[1]", proc+"/7/ns/mnt"), os.Mkdir(proc+"/7/root", 0o700),
		os.Symlink("/proc/self/ns/net", proc+`/7/root/a b\`), os.Symlink("/proc/self/ns/uts", proc+"/7/root/uts"),
		os.WriteFile(proc+"/7/mountinfo", []byte("1 0 0:4 / /run rw\n2 1 0:4 uts:[2] /uts rw\n3 1 0:4 net:[3] /uts rw\n4 1 0:4 net:[4] /a\\040b\\134\n5 1 0:4 net:[4] /a\\040b\\134\n6 1 0:4 net:[5]\n"), 0o600))
	found, err := process.Namespaces(proc)
	difftest.Must(t, err)
	difftest.Equal(t, found, []string{proc + `/7/root/a b\`})
}

func TestNamespaceOfThreadIsFound(t *testing.T) {
	linktest.RunAlone(t, func(t *testing.T) {
		path := fmt.Sprintf("/proc/%d/task/%s/ns/net", os.Getpid(), thread(t, unix.CLONE_NEWNET))
		paths, err := process.Namespaces("/proc")
		difftest.Must(t, err)
		if !slices.Contains(paths, path) {
			t.Errorf("%s is not in %q", path, paths)
		}
		linktest.EachOpenFailure(t, map[string]func() error{
			"Namespaces": func() error { _, err := process.Namespaces("/proc"); return err },
			"Opened":     func() error { _, err := process.Opened("/proc", full); return err },
		})
		difftest.Must(t, unix.Mount("tmpfs", "/proc", "tmpfs", 0, ""))
		if paths, err := process.Namespaces("/proc"); err == nil {
			t.Errorf("without proc it finds %v", paths)
		}
	})
}

func TestDeviceWithoutNumberIsAnError(t *testing.T) {
	for _, text := range []string{"", "10", "a:b"} {
		if holders, err := process.Opened(t.TempDir(), []string{"1:7", text}); err == nil {
			t.Errorf("%q: %v", text, holders)
		}
	}
	holders, err := process.Opened("/none", nil) // of a device without nodes
	difftest.Must(t, err)
	difftest.Equal(t, len(holders), 0)
}
