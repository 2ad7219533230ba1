package kernel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/test/difftest"
)

// rounds returns the number of repetitions of a race: DEVINFO_ROUNDS, or a small number.
func rounds(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("DEVINFO_ROUNDS"))
	if os.Getenv("DEVINFO_ROUNDS") == "" {
		return 300
	}
	if err != nil || n < 100 { // with fewer rounds one side may win all
		t.Fatalf("DEVINFO_ROUNDS=%s is no number of rounds of at least 100", os.Getenv("DEVINFO_ROUNDS"))
	}
	return n
}

// valuables creates the files outside the attacked directory. It returns a function that returns their state.
func valuables(t *testing.T) (state func() string) {
	t.Helper()
	const text = `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "` + marked + `"}}`
	must(t, os.Mkdir(outside, 0o755), os.WriteFile(outsideInfo, []byte(text), 0o644), os.WriteFile(outsideLinked, []byte("{}"), 0o644))
	return func() string {
		var lines []string
		for _, path := range []string{outside, outsideInfo, outsideLinked} {
			var s unix.Stat_t
			if err := unix.Lstat(path, &s); err != nil {
				return err.Error()
			}
			lines = append(lines, fmt.Sprintf("%s %o %d:%d inode %d", path, s.Mode, s.Uid, s.Gid, s.Ino))
		}
		return strings.Join(append(lines, files(t, outside), read(t, outsideInfo), read(t, outsideLinked)), "\n")
	}
}

// believed fails the test if an answer or the journal contains the address in the file outside.
func believed(t *testing.T, a answer) {
	t.Helper()
	for _, text := range []string{a.stdout, a.stderr, read(t, itsEntry)} {
		if strings.Contains(text, marked) {
			t.Fatalf("the file outside was read:\n%s", text)
		}
	}
}

// besieged repeats a round while the attacker works on a directory that it owns. Whatever happens, nothing outside may change.
func besieged(t *testing.T, what, dir string, round func()) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	state := valuables(t)
	before, stop := state(), attack(t, what, dir)
	for range rounds(t) {
		round()
		if now := state(); now != before {
			t.Fatalf("outside there is\n%s\nand was\n%s", now, before)
		}
	}
	stop()
}

// A user who can create names in the device-info directory can make calls fail. The plugin must not create, change,
// read or remove a file outside.
func TestSwappedNamesInDeviceInfoDirectoryAreNotFollowed(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		codes := map[string]int{}
		besieged(t, attackNames, infoDir, func() {
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				a := call(t, verb, pod, standalone)
				believed(t, a)
				codes[fmt.Sprint(verb, " ", a.exit)]++
			}
		})
		t.Logf("%v", codes)
		same(t, "the race was one", fmt.Sprint(codes["ADD 0"] > 0, codes["ADD 1"] > 0), "true true")
		must(t, os.RemoveAll(infoDir))
		delLeavesNothing(t, pod, standalone)
	})
}

// A user who can create names in a directory of sockets can replace a pod's directory by a link. The CDI spec must
// not contain the target of the link.
func TestSwappedSocketDirectoryIsNotMountedFromElsewhere(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const sockets = "/run/sockets"
		nodeSettings(t, map[string]any{"cdiDir": cdiDir, "socketDirs": []string{sockets}})
		conf := `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "cdi": {"name": "{podUID}-{ifName}", "socketDir": "` + sockets + `/{podUID}"},
			"deviceInfo": {"type": "memif", "memif": {"role": "slave", "mode": "ip", "path": "/run/memif/m.sock"}}}`
		mounts := map[string]int{}
		besieged(t, attackDir, sockets, func() {
			call(t, "ADD", pod, conf, podUID).ok(t)
			for _, path := range difftest.Files(t, cdiDir) {
				for _, host := range mountsOf(t, path) {
					mounts[host]++
				}
			}
			call(t, "DEL", pod, conf, podUID).ok(t)
		})
		if mounts[sockets+"/6e0c"] == 0 || len(mounts) > 1 {
			t.Errorf("no CDI spec had the directory, so that the race was none, or it is mounted from elsewhere: %v", mounts)
		}
		nothingLeft(t)
	})
}

// mountsOf returns the host's paths in the mounts of a CDI spec.
func mountsOf(t *testing.T, path string) (hosts []string) {
	t.Helper()
	var spec specs.Spec
	must(t, json.Unmarshal([]byte(read(t, path)), &spec))
	for _, device := range spec.Devices {
		for _, mount := range device.ContainerEdits.Mounts {
			hosts = append(hosts, mount.HostPath)
		}
	}
	return hosts
}

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
