package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/core/safefile"
	"devinfo-cni.io/pkg/core/safefile/safefiletest"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

func TestUnexposedNeedsRootOwnedPath(t *testing.T) {
	linktest.Run(t, func(t *testing.T) { // /run belongs to root and has mode 0755
		dir := func(path string, mode uint32) { must(t, os.Mkdir(path, 0o755), syscall.Chmod(path, mode)) }
		dir("/run/alone", 0o755)
		dir("/run/alone/infos", 0)
		dir("/run/alone/group", 0o775)
		dir("/run/alone/group/infos", 0o755)
		dir("/run/tmp", 0o1777)
		dir("/run/tmp/infos", 0o755)
		must(t, os.WriteFile("/run/file", nil, 0o644))
		for link, target := range map[string]string{
			"/run/absolute": "/run/alone", "/run/alone/relative": "../alone/infos", "/run/into": "tmp/infos", "/run/nowhere": "gone/infos",
			"/run/tmp/out": "/run/alone", "/run/round": "round", "/run/through": "/run/tmp/../alone",
		} {
			must(t, os.Symlink(target, link))
		}
		for path, why := range map[string]string{
			"/": "", "/run/alone": "", "/run/alone/infos": "", "/run/absolute/infos": "", "/run/alone/relative": "",
			"/run/alone/gone/infos": "", "/run/nowhere": "", // only root can create these
			"/run/alone/group":       "/run/alone/group has mode drwxrwxr-x",
			"/run/alone/group/infos": "/run/alone/group has mode drwxrwxr-x",
			"/run/tmp":               "/run/tmp has mode dtrwxrwxrwx",
			"/run/tmp/infos":         "/run/tmp has mode dtrwxrwxrwx", // any user could create it after a deletion
			"/run/tmp/gone":          "/run/tmp has mode dtrwxrwxrwx",
			"/run/into":              "/run/tmp has mode dtrwxrwxrwx",
			"/run/tmp/out":           "/run/tmp has mode dtrwxrwxrwx",
			"/run/through":           "/run/tmp has mode dtrwxrwxrwx",
			"/run/round":             "too many levels of symbolic links",
			"/run/file/infos":        "not a directory",
			"run":                    "must be an absolute path",
		} {
			if err := safefile.Unexposed(path); why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
				t.Errorf("%s: got %v, want %q", path, err, why)
			}
		}
	})
}

// A link in the node's root must lead to a directory of the node, not of the container.
func TestUnexposedBelowFollowsLinksInRoot(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		must(t, os.MkdirAll("/run/host/run/infos", 0o755), os.MkdirAll("/run/host/var", 0o755), os.Mkdir("/run/open", 0), syscall.Chmod("/run/open", 0o777))
		must(t, os.Symlink("/run", "/run/host/var/run"), os.Symlink("../../../run/open", "/run/host/out"))
		must(t, safefile.UnexposedBelow("/run/host", "/var/run/infos"), os.Mkdir("/run/host/run/open", 0), syscall.Chmod("/run/host/run/open", 0o777))
		difftest.Says(t, safefile.UnexposedBelow("/run/host", "/out"), "/run/open has mode")
	})
}

func TestUnexposedRejectsOtherOwner(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		must(t, os.MkdirAll("/run/theirs/infos", 0o755))
		if err := os.Chown("/run/theirs", 1, 0); errors.Is(err, syscall.EINVAL) {
			t.Skip("an ordinary user's namespace has no second user")
		} else if err != nil {
			t.Fatal(err)
		}
		difftest.Says(t, safefile.Unexposed("/run/theirs/infos"), "/run/theirs belongs to user 1: users other than root can replace its contents")
	})
}

func TestAloneWaitsForLock(t *testing.T) {
	d := safefile.Open(t.TempDir())
	difftest.Is(t, safefile.Open(d.Path("none")).Alone(time.Minute, func() error { return nil }), fs.ErrNotExist)
	lock := safefiletest.Lock(t, d.Path(""))
	difftest.As[*safefile.BusyError](t, d.Alone(0, func() error { return d.Link("a", "b") }))
	difftest.Holds(t, d.Path(""))
	synctest.Test(t, func(t *testing.T) {
		time.AfterFunc(time.Second, func() { lock.Close() })
		difftest.Is(t, d.Alone(time.Minute, func() error { return os.ErrInvalid }), os.ErrInvalid)
	})
	safefiletest.Lock(t, d.Path("")) // succeeds because Alone has released its lock
}

func TestFullDiskKeepsFilesAndAllowsRemoval(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := safefiletest.Mount(t, 6)
		d := safefile.Open(disk.Dir + "/state")
		must(t, d.Write("a", []byte("old")), d.Link("b", "a"))
		disk.Fill(0)
		difftest.Is(t, d.Write("a", []byte("new")), syscall.ENOSPC)
		difftest.Is(t, d.Link("c", "a"), syscall.ENOSPC)
		expect(t, d, "a", "old")
		difftest.Holds(t, d.Path(""), "a", "b")
		must(t, d.Alone(time.Minute, func() error { return d.Remove("b") }), d.Remove("a"), d.Sweep(nil))
		difftest.Holds(t, d.Path(""))
		must(t, d.Write("a", make([]byte, 1000)))                         // a write needs two free inodes
		difftest.Is(t, d.Write("b", make([]byte, 2<<20)), syscall.ENOSPC) // more than the disk's blocks
		difftest.Holds(t, d.Path(""), "a")
	})
}

func TestReadOnlyDiskAllowsCallsWithoutChanges(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := safefiletest.Mount(t, 10)
		d := safefile.OpenDurable(disk.Dir + "/state")
		none := safefile.OpenDurable(disk.Dir + "/none")
		must(t, d.Write("a", []byte("x")))
		disk.ReadOnly(true)
		for _, d := range []*safefile.Dir{d, none} {
			must(t, d.Remove("b"), d.Sweep(nil))
			difftest.Is(t, d.Write("a", nil), syscall.EROFS)
		}
		difftest.Is(t, d.Remove("a"), syscall.EROFS)
		must(t, d.Alone(time.Minute, func() error { return nil }))
		expect(t, d, "a", "x")
		disk.ReadOnly(false)
		must(t, d.Remove("a"))
	})
}
