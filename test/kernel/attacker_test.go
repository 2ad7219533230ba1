package kernel_test

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// outside is a directory that no name in an attacked directory may lead to. Its device-info file has an address that
// no other file has. The plugin may read a hard link, because it cannot tell it from another file, but must not write
// to it. If fs.protected_hardlinks is 1, an attacker who is another user cannot create hard links.
const (
	outside       = "/run/outside"
	outsideInfo   = outside + "/info.json"
	outsideLinked = outside + "/linked"
	marked        = "0000:66:06.6"
)

const (
	attackNames = "names" // names in the device-info directory
	attackDir   = "dir"   // the directory of a socket
)

// attack starts the attacker on a directory that it owns, until stop is called. If the test has the right, the
// attacker is another user.
func attack(t *testing.T, what, dir string) (stop func()) {
	t.Helper()
	const program = "/run/attacker" // a copy, because the attacker may not have access to our file
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err, os.WriteFile(program, self, 0o755))
	cmd := &exec.Cmd{Path: program, Args: []string{"attacker", what, dir}, Env: os.Environ(), Stderr: os.Stderr}
	if uids, err := os.ReadFile("/proc/self/uid_map"); err == nil && strings.Fields(string(uids))[2] != "1" {
		const nobody = 65534
		must(t, os.Chown(dir, nobody, nobody))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	_, err = stdout.Read(make([]byte, 1)) // the attacker has started
	must(t, err)
	return func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("attacker: %v", err)
		}
	}
}

// playAttacker is the attacker: the test binary under this name. It runs until its standard input is closed.
func playAttacker() {
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	a := &attacker{random: rand.New(rand.NewPCG(1, 2)), dir: os.Args[2]}
	turn := a.names
	if os.Args[1] == attackDir {
		turn = a.socketDir
	}
	turn()
	os.Stdout.WriteString(".")
	for {
		select {
		case <-done:
			return
		default:
			turn()
		}
	}
}

type attacker struct {
	random *rand.Rand
	dir    string
	locked *os.File
}

// names replaces one of the two names that ADD uses. Failed changes are repeated later.
func (a *attacker) names() {
	names := []string{filepath.Base(infoFile), "." + filepath.Base(infoFile) + ".devinfo"}
	a.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	path, other := filepath.Join(a.dir, names[0]), filepath.Join(a.dir, names[1])
	place := a.dir + "/.attack"
	_ = os.RemoveAll(place)
	switch a.random.IntN(11) {
	case 0:
		_ = os.Symlink(outsideInfo, place)
	case 1:
		_ = os.Symlink(outside, place)
	case 2:
		_ = os.Symlink(outside+"/new", place)
	case 3:
		_ = os.Symlink(names[1], place)
	case 4:
		_ = os.Symlink("../../../outside/info.json", place)
	case 5:
		_ = syscall.Mkfifo(place, 0o666)
	case 6:
		_ = os.Mkdir(place, 0o777)
	case 7:
		_ = os.Link(outsideLinked, place)
	case 8:
		a.lock(place)
	case 9:
		_ = os.Rename(path, other)
		return
	default:
		_ = os.RemoveAll(path)
		return
	}
	if err := os.Rename(place, path); errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
		_ = os.RemoveAll(path)
		_ = os.Rename(place, path)
	}
}

// lock creates a file and holds its lock until the next call.
func (a *attacker) lock(path string) {
	if a.locked != nil {
		a.locked.Close()
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return
	}
	a.locked = f
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX)
}

// socketDir replaces the name of a pod's socket directory.
func (a *attacker) socketDir() {
	path, place := a.dir+"/6e0c", a.dir+"/.attack"
	_ = os.RemoveAll(place)
	switch a.random.IntN(6) {
	case 0:
		_ = os.Symlink(outside, place)
	case 1:
		_ = os.Symlink("../outside", place)
	case 2:
		_ = os.Symlink("/", place)
	case 3:
		_ = os.WriteFile(place, nil, 0o666)
	default:
		_ = os.Mkdir(place, 0o777)
	}
	if os.Rename(place, path) != nil {
		_ = os.RemoveAll(path)
		_ = os.Rename(place, path)
	}
}
