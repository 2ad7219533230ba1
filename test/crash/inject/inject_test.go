package inject_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/difftest"
)

// With this environment variable the test binary is the tested program: it creates files in the directory and prints
// their number.
const dirKey = "INJECT_TEST_DIR"

const files = 40

func TestMain(m *testing.M) {
	switch dir := os.Getenv(dirKey); {
	case dir == "":
		os.Exit(m.Run())
	case filepath.Base(dir) == "lock":
		fmt.Print(lock(dir))
	case filepath.Base(dir) == "child":
		makeFiles(dir)
	default:
		_, _ = os.Stat(dir)
		fmt.Print(makeFiles(dir))
		if out, err := program(filepath.Join(dir, "child")).CombinedOutput(); err != nil {
			panic(string(out))
		}
	}
}

// makeFiles creates files from many threads, and returns the number of created files.
func makeFiles(dir string) (made int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range files {
		all.Go(func() {
			if os.Mkdir(filepath.Join(dir, fmt.Sprint(n)), 0o755) == nil {
				mu.Lock()
				defer mu.Unlock()
				made++
			}
		})
	}
	all.Wait()
	return made
}

// lock locks a directory exclusively and shared, and returns the number of successful locks.
func lock(dir string) (locked int) {
	for _, how := range []int{unix.LOCK_EX | unix.LOCK_NB, unix.LOCK_SH} {
		f, err := os.Open(dir)
		if err != nil {
			panic(err)
		}
		if unix.Flock(int(f.Fd()), how) == nil {
			locked++
		}
		f.Close()
	}
	return locked
}

func program(dir string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), dirKey+"="+dir)
	return cmd
}

// try runs the program. v applies to the mkdirat call with the number at; 0 = to none.
func try(t *testing.T, i *inject.Injector, at int, v inject.Verdict) (dir, out string, calls []inject.Call, exit int) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.Mkdir(dir+"/child", 0o755))
	var stdout strings.Builder
	cmd := program(dir)
	cmd.Stdout = &stdout
	mkdirs := 0
	must(t, i.Run(cmd, func(c inject.Call) inject.Verdict {
		calls = append(calls, c)
		if c.Child || c.Name != "mkdirat" {
			return inject.Verdict{}
		}
		if mkdirs++; mkdirs == at {
			return v
		}
		return inject.Verdict{}
	}))
	return dir, stdout.String(), calls, cmd.ProcessState.ExitCode()
}

var must = difftest.Must

func count(t *testing.T, dir string) int { return len(difftest.Names(t, dir)) }

func injector(t *testing.T) *inject.Injector { return inject.New(t, inject.Changes) }

func TestChildrenAreCountedSeparatelyFromThreads(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir, out, calls, exit := try(t, injector(t), 0, inject.Verdict{})
		if exit != 0 || out != fmt.Sprint(files) {
			t.Fatal(exit, out)
		}
		numbers := map[string]int{}
		for _, c := range calls {
			numbers[fmt.Sprint(c.Name, c.Child)]++
			if c.Name == "mkdirat" && filepath.Dir(c.Path) != dir && filepath.Dir(c.Path) != dir+"/child" {
				t.Error(c)
			}
		}
		want := map[string]int{"mkdiratfalse": files, "mkdirattrue": files, "writefalse": 1, "exit_groupfalse": 1}
		if fmt.Sprint(numbers) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", numbers, want)
		}
		if last := calls[len(calls)-1]; last.Name != "exit_group" || last.N != files+2 {
			t.Errorf("the last call is %v", last)
		}
	})
}

func TestKilledProgramHasMadeEarlierCalls(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		i := injector(t)
		for _, at := range []int{1, 7, files} {
			dir, out, _, exit := try(t, i, at, inject.Verdict{Kill: true})
			if exit != -1 || out != "" {
				t.Errorf("%d, %q", exit, out)
			}
			if got := count(t, dir) - 1; got != at-1 {
				t.Errorf("killed before call %d it has made %d", at, got)
			}
		}
	})
}

func TestErrnoAffectsOneCallWithoutEffect(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir, out, _, exit := try(t, injector(t), 3, inject.Verdict{Errno: unix.EROFS})
		if got := count(t, dir) - 1; exit != 0 || out != fmt.Sprint(files-1) || got != files-1 {
			t.Errorf("%d, %s, %d files", exit, out, got)
		}
	})
}

func TestChildOutlivesKilledProgram(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		i, dir := injector(t), t.TempDir()
		must(t, os.Mkdir(dir+"/child", 0o755))
		cmd := program(dir)
		must(t, i.Run(cmd, func(c inject.Call) inject.Verdict { return inject.Verdict{Kill: c.Child} }))
		difftest.Same(t, "exit code", cmd.ProcessState.ExitCode(), -1)
		difftest.Eventually(t, "all of its own", func() bool { return count(t, dir+"/child") == files })
	})
}

func TestReadsAndExitsOfChildrenAreIntercepted(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir, out, calls, exit := try(t, inject.New(t, inject.Changes|inject.Reads), 0, inject.Verdict{})
		if exit != 0 || out != fmt.Sprint(files) {
			t.Fatal(exit, out)
		}
		var reads int
		var last inject.Call
		for _, c := range calls {
			if c.Name == "newfstatat" && c.Path == dir {
				reads++
			}
			if c.Child {
				last = c
			}
		}
		if reads != 1 || last.Name != "exit_group" {
			t.Errorf("%d reads of the directory, the children's last call is %v", reads, last)
		}
	})
}

func TestLockOfOtherProcessIsReported(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "lock")
		must(t, os.Mkdir(dir, 0o755))
		for _, c := range []struct {
			how  int // mode of the lock in this process
			want string
		}{
			{unix.LOCK_UN, "2 [{false true} {false false}]"},
			{unix.LOCK_SH, "1 [{true true} {false false}]"},
			{unix.LOCK_EX, "1 [{true true} {true false}]"},
		} {
			ours, err := os.Open(dir)
			if err != nil || unix.Flock(int(ours.Fd()), c.how) != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			var locks []inject.Lock
			cmd := program(dir)
			cmd.Stdout = &out
			err = inject.New(t, inject.Locks).Run(cmd, func(call inject.Call) inject.Verdict {
				locks = append(locks, call.Lock)
				if call.Path != dir {
					t.Errorf("the lock of %s", call.Path)
				}
				if call.Lock.Taken && !call.Lock.Tries {
					ours.Close() // which ends the wait
				}
				return inject.Verdict{}
			})
			ours.Close()
			if got := fmt.Sprint(out.String(), " ", locks); err != nil || got != c.want {
				t.Errorf("ours is %d: got %s, %v, want %s", c.how, got, err, c.want)
			}
		}
	})
}

// Other processes continue while the call is held.
func TestHeldCallIsMadeWhenReleased(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir, goOn, held := t.TempDir(), make(chan struct{}), make(chan struct{})
		must(t, os.Mkdir(dir+"/child", 0o755))
		i, done := injector(t), make(chan error, 1)
		go func() {
			done <- i.Run(program(dir), func(c inject.Call) inject.Verdict {
				if c.Child || c.Name != "exit_group" {
					return inject.Verdict{}
				}
				close(held)
				return inject.Verdict{Hold: goOn}
			})
		}()
		<-held
		if got := count(t, dir) + count(t, dir+"/child"); got != 2*files+1 {
			t.Errorf("%d files before its last call", got)
		}
		select {
		case err := <-done:
			t.Errorf("ended while held: %v", err)
		default:
		}
		close(goOn)
		must(t, <-done)
	})
}
