package crash_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/node"
)

// damages are the contents that a file may have after a power failure or on a bad disk. nil removes the file.
var damages = map[string]func(text []byte) []byte{
	"gone":         func([]byte) []byte { return nil },
	"empty":        func([]byte) []byte { return []byte{} },
	"half":         func(text []byte) []byte { return text[:len(text)/2] },
	"a byte short": func(text []byte) []byte { return text[:max(len(text), 1)-1] },
	"zeros":        func(text []byte) []byte { return make([]byte, len(text)) },
	"noise":        noise,
	"huge":         func(text []byte) []byte { return bytes.Repeat([]byte("["), 8<<20) },
}

func noise(text []byte) []byte {
	random := rand.New(rand.NewPCG(1, uint64(len(text))))
	text = slices.Clone(text)
	for n := range text {
		text[n] = byte(random.Uint32())
	}
	return text
}

// A loss is a failure after an ADD, and the runtime's next call.
type loss struct {
	file   string // damaged file, or all, or neighbours
	damage string
	reboot bool // another boot ID, an empty /run and no pods
	then   string
}

const (
	all        = "all state"
	neighbours = "a neighbour's state"
)

// neighbour is an attachment of the same network, and roommate is one of our pod, which may share our device.
var (
	neighbour = attachment{"feed5a1ad000feed5a1ad000", "net1", otherNetns, otherUID}
	roommate  = attachment{neighbour.container, neighbour.ifName, otherNetns, podUID}
)

func (l loss) String() string {
	boot := "same boot"
	if l.reboot {
		boot = "rebooted"
	}
	return fmt.Sprintf("%s %s, %s, %s", l.file, l.damage, boot, l.then)
}

func TestPowerFailureBreaksNoVerbAndLeavesNoState(t *testing.T) {
	inEach(t, "", func(w *world, s scenario, found findings) {
		w.boot(boots[0])
		w.settle(s)
		for _, l := range pick(w.random(), w.losses(s)) {
			found.add(w.lose(s, l), fmt.Sprintf("%s='%s'", extent, l))
		}
	})
}

var boots = [2]string{"5d4ae9a0-8a3c-4a6b-9f51-3c1f0f0e7c01", "e7b6c3d2-1f7e-4b0a-8d57-9a2f4c6d8e02"}

const bootID = "/proc/sys/kernel/random/boot_id"

// boot changes the kernel's boot ID.
func (w *world) boot(name string) {
	w.t.Helper()
	file := filepath.Dir(podNetns) + "/boot_id" // which snapshots leave out
	err := os.WriteFile(file, []byte(name+"\n"), 0o444)
	if now, _ := os.ReadFile(bootID); err == nil && string(now) != name+"\n" {
		err = unix.Mount(file, bootID, "", unix.MS_BIND, "")
	}
	w.fine(err)
}

// losses returns the possible failures of an attachment.
func (w *world) losses(s scenario) (list []loss) {
	w.t.Helper()
	now := w.attached(s)
	view.Restore(w.t, w.base, now)
	for _, path := range append(slices.Sorted(maps.Keys(w.owned(now))), all, neighbours) {
		for _, damage := range slices.Sorted(maps.Keys(damages)) {
			// Only the state directory is usually on a disk.
			link, state := now[path].Mode&fs.ModeSymlink != 0, !strings.HasPrefix(path, "/run")
			if link && damage != "gone" && damage != "noise" || !state && damage != "gone" && damage != "empty" {
				continue
			}
			for _, then := range []string{del, gc, again} {
				list = append(list, loss{path, damage, false, then})
				if state {
					list = append(list, loss{path, damage, true, then})
				}
			}
		}
	}
	return list
}

// attached runs ADD, and returns the snapshot after it.
func (w *world) attached(s scenario) node.Snapshot {
	w.t.Helper()
	w.before(trial{scenario: s, verb: "DEL"})
	return view.Take(w.t)
}

// owned returns the files and links of an attachment, without the files of its delegates.
func (w *world) owned(now node.Snapshot) node.Snapshot {
	files := now.Beyond(w.base)
	maps.DeleteFunc(files, func(path string, f node.Thing) bool {
		return f.Mode.IsDir() || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, ipamDir)
	})
	return files
}

// lose causes a loss, and returns the problems after it. It restores the world.
func (w *world) lose(s scenario, l loss) (problems []string) {
	w.t.Helper()
	w.strike(s, l)
	if l.reboot {
		defer w.boot(boots[0])
	}
	if l.then == again && s.delegating() { // the delegates still know the attachment, so the runtime runs DEL first
		problems = w.afterwards(trial{scenario: s, then: del})
	}
	problems = append(problems, w.afterwards(trial{scenario: s, then: l.then})...)
	if l.then == gc { // only DEL has the lost data: the path, the network namespace, the delegates' device
		for _, problem := range w.base.Left(view.Take(w.t)) {
			if strings.HasPrefix(problem, "left: "+stateDir) {
				problems = append(problems, "GC "+problem)
			}
		}
		problems = append(problems, w.afterwards(trial{scenario: s, then: del})...)
	}
	if l.file == neighbours {
		if why := w.call("DEL", roommate, roommate.standalone("net"), nil).Failure(); why != "" {
			problems = append(problems, "DEL of the neighbour afterwards failed: "+why)
		}
	}
	// Only GC can tell that a link without target, or the directory of a lease without link, has no owner, because it
	// knows all owners.
	if view.Take(w.t)[l.file].Mode&fs.ModeSymlink != 0 || (l.file == all || l.file == neighbours) && l.damage == "gone" {
		problems = append(problems, w.afterwards(trial{scenario: s, then: gc})...)
	}
	problems = append(problems, w.remains(trial{scenario: s})...)
	slices.Sort(problems)
	return slices.Compact(problems)
}

// strike adds attachments, and damages one of them.
func (w *world) strike(s scenario, l loss) {
	w.t.Helper()
	now := w.attached(s)
	files := w.owned(now)
	if l.file == neighbours {
		w.must("ADD", roommate, roommate.standalone("net"))
		ours := files
		files, now = w.owned(view.Take(w.t)), view.Take(w.t)
		maps.DeleteFunc(files, func(path string, _ node.Thing) bool { return ours[path] == files[path] })
	}
	for path, file := range files {
		// Links are created atomically.
		state := strings.HasPrefix(path, stateDir) && (file.Mode.IsRegular() || l.damage == "gone")
		if path == l.file || state && !strings.HasPrefix(l.file, "/") {
			w.damage(path, file, l.damage)
		}
	}
	if !l.reboot {
		return
	}
	w.boot(boots[1])
	for name := range now.Beyond(w.base) {
		if !strings.HasPrefix(name, "/var/lib") {
			w.fine(view.Remove(name))
		}
	}
}

// damage damages a file, or replaces the target of a link.
func (w *world) damage(path string, was node.Thing, damage string) {
	w.t.Helper()
	err := os.Remove(path)
	switch text := damages[damage]([]byte(was.Text)); {
	case err != nil || text == nil:
	case was.Mode&fs.ModeSymlink != 0:
		err = os.Symlink("../nowhere/"+filepath.Base(was.Text), path)
	default:
		err = os.WriteFile(path, text, was.Mode.Perm())
	}
	w.fine(err)
}
