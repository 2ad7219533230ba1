package private_test

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/link/linktest"
	"devinfo-cni.io/pkg/private"
	"devinfo-cni.io/pkg/private/privatetest"
)

func TestAloneExcludesOthers(t *testing.T) {
	d := private.Open(t.TempDir())
	if err := private.Open(d.Path("none")).Alone(time.Minute, func() error { return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	lock := privatetest.Lock(t, d.Path(""))
	if err := d.Alone(0, func() error { return d.Link("a", "b") }); !errors.As(err, new(*private.BusyError)) {
		t.Errorf("got %v", err)
	}
	expectEntries(t, d)
	synctest.Test(t, func(t *testing.T) {
		time.AfterFunc(time.Second, func() { lock.Close() })
		if err := d.Alone(time.Minute, func() error { return os.ErrInvalid }); err != os.ErrInvalid {
			t.Errorf("got %v", err)
		}
	})
	privatetest.Lock(t, d.Path("")) // it is free again
}

func TestAFullDiskKeepsTheOldFilesAndLetsThemGo(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := privatetest.Mount(t, 6)
		d := private.Open(disk.Dir + "/state")
		must(t, d.Write("a", []byte("old")), d.Link("b", "a"))
		disk.Fill(0)
		for method, err := range map[string]error{"Write": d.Write("a", []byte("new")), "Link": d.Link("c", "a")} {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: got %v", method, err)
			}
		}
		expect(t, d, "a", "old")
		expectEntries(t, d, "a", "b")
		must(t, d.Alone(time.Minute, func() error { return d.Remove("b") }), d.Remove("a"), d.Sweep(nil))
		expectEntries(t, d)
		must(t, d.Write("a", make([]byte, 1000))) // two inodes are free
		if err := d.Write("b", make([]byte, 2<<20)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("no blocks: got %v", err)
		}
		expectEntries(t, d, "a")
	})
}

func TestAReadOnlyDiskWillDoWhereNothingHasToChange(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := privatetest.Mount(t, 10)
		d := private.OpenDurable(disk.Dir + "/state")
		none := private.OpenDurable(disk.Dir + "/none")
		must(t, d.Write("a", []byte("x")))
		disk.ReadOnly(true)
		for _, d := range []*private.Dir{d, none} {
			must(t, d.Remove("b"), d.Sweep(nil))
			if err := d.Write("a", nil); !errors.Is(err, syscall.EROFS) {
				t.Errorf("Write: got %v", err)
			}
		}
		if err := d.Remove("a"); !errors.Is(err, syscall.EROFS) {
			t.Errorf("Remove: got %v", err)
		}
		must(t, d.Alone(time.Minute, func() error { return nil }))
		expect(t, d, "a", "x")
		disk.ReadOnly(false)
		must(t, d.Remove("a"))
	})
}
