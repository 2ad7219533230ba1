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

// A ran is one run of the program.
type ran struct {
	dir, out string
	calls    []inject.Call
	exit     int
}

// try runs the program below an injector of these calls. v applies to the mkdirat call with the number at; 0 = to none.
func try(t *testing.T, which inject.Calls, at int, v inject.Verdict) (r ran) {
	t.Helper()
	r.dir = t.TempDir()
	must(t, os.Mkdir(r.dir+"/child", 0o755))
	var stdout strings.Builder
	cmd := program(r.dir)
	cmd.Stdout = &stdout
	mkdirs := 0
	must(t, inject.New(t, which).Run(cmd, func(c inject.Call) inject.Verdict {
		r.calls = append(r.calls, c)
		if c.Child || c.Name != "mkdirat" {
			return inject.Verdict{}
		}
		if mkdirs++; mkdirs == at {
			return v
		}
		return inject.Verdict{}
	}))
	r.out, r.exit = stdout.String(), cmd.ProcessState.ExitCode()
	return r
}

var must = difftest.Must

func count(t *testing.T, dir string) int { return len(difftest.Names(t, dir)) }

func TestChildrenAreCountedSeparatelyFromThreads(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := try(t, inject.Changes, 0, inject.Verdict{})
		numbers := map[string]int{}
		for _, c := range r.calls {
			numbers[fmt.Sprint(c.Name, c.Child)]++
			if c.Name == "mkdirat" && filepath.Dir(c.Path) != r.dir && filepath.Dir(c.Path) != r.dir+"/child" {
				t.Error(c)
			}
		}
		difftest.Equal(t, numbers, map[string]int{"mkdiratfalse": files, "mkdirattrue": files, "writefalse": 1, "exit_groupfalse": 1})
		if last := r.calls[len(r.calls)-1]; last.Name != "exit_group" || last.N != files+2 || r.exit != 0 || r.out != fmt.Sprint(files) {
			t.Errorf("the last call is %v, exit code %d, %q", last, r.exit, r.out)
		}
	})
}

func TestVerdictAffectsOneCall(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		for _, c := range []struct {
			at         int
			v          inject.Verdict
			exit, made int
			out        string
		}{
			{1, inject.Verdict{Kill: true}, -1, 0, ""}, // it has made the calls before
			{7, inject.Verdict{Kill: true}, -1, 6, ""},
			{files, inject.Verdict{Kill: true}, -1, files - 1, ""},
			{3, inject.Verdict{Errno: unix.EROFS}, 0, files - 1, fmt.Sprint(files - 1)},
		} {
			r := try(t, inject.Changes, c.at, c.v)
			difftest.Same(t, fmt.Sprintf("%+v", c), []any{r.exit, count(t, r.dir) - 1, r.out}, []any{c.exit, c.made, c.out})
		}
	})
}

func TestChildOutlivesKilledProgram(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		must(t, os.Mkdir(dir+"/child", 0o755))
		cmd := program(dir)
		must(t, inject.New(t, inject.Changes).Run(cmd, func(c inject.Call) inject.Verdict { return inject.Verdict{Kill: c.Child} }))
		difftest.Same(t, "exit code", cmd.ProcessState.ExitCode(), -1)
		difftest.Eventually(t, "all of its own", func() bool { return count(t, dir+"/child") == files })
	})
}

func TestReadsAndExitsOfChildrenAreIntercepted(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := try(t, inject.Changes|inject.Reads, 0, inject.Verdict{})
		var reads int
		var last inject.Call
		for _, c := range r.calls {
			if c.Name == "newfstatat" && c.Path == r.dir {
				reads++
			}
			if c.Child {
				last = c
			}
		}
		difftest.Equal(t, []any{r.exit, r.out, reads, last.Name}, []any{0, fmt.Sprint(files), 1, "exit_group"})
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
		i, done := inject.New(t, inject.Changes), make(chan error, 1)
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
