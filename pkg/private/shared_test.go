package private_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/link/linktest"
	"devinfo-cni.io/pkg/private"
	"devinfo-cni.io/pkg/private/privatetest"
)

// Also the file of a writer that another's Remove has overtaken is never half of one.
func TestReadersSeeAWholeFileWhileManyWriteAndRemove(t *testing.T) {
	d := private.Open(t.TempDir() + "/state")
	var all sync.WaitGroup
	for n := range 6 {
		content := bytes.Repeat([]byte{'a' + byte(n)}, 1000+9000*n)
		all.Go(func() {
			for range 200 {
				if err := d.Write("a", content); err != nil {
					t.Error(err)
				}
				if n == 0 {
					if err := d.Remove("a"); err != nil {
						t.Error(err)
					}
				}
				data, err := d.Read("a")
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil || len(data) == 0 || !bytes.Equal(data, bytes.Repeat(data[:1], 1000+9000*int(data[0]-'a'))) {
					t.Errorf("half a file: %d bytes, %v", len(data), err)
				}
			}
		})
	}
	all.Wait()
	must(t, d.Remove("a"))
	expectEntries(t, d)
}

func TestAWriterWaitsForTheOneOfItsNameAndTakesOverFromTheDead(t *testing.T) {
	d := private.Open(t.TempDir())
	temp := d.Path(".a.devinfo")
	must(t, os.WriteFile(temp, []byte("half of a longer content"), 0o600))
	lock := privatetest.Lock(t, temp)
	var err error
	done := make(chan struct{})
	go func() { err = d.Write("a", []byte("whole")); close(done) }()
	must(t, d.Write("b", nil), d.Remove("b"), d.Remove("a"))
	if !privatetest.Await(t, lock, done) {
		t.Error("Write did not wait")
	}
	expectEntries(t, d, ".a.devinfo") // Remove has left a living writer's file alone
	lock.Close()
	<-done
	must(t, err)
	expect(t, d, "a", "whole")
	expectEntries(t, d, "a")
}

func TestRemoveTakesWhatADeadWriterLeft(t *testing.T) {
	d := private.Open(t.TempDir())
	must(t, d.Write("a", nil), os.WriteFile(d.Path(".a.devinfo"), nil, 0o600), os.WriteFile(d.Path(".b.devinfo"), nil, 0o600))
	must(t, d.Remove("a"), d.Remove("b"))
	expectEntries(t, d)
}

func TestSweepTellsTheDeadFromTheLivingByTheirLocks(t *testing.T) {
	d := private.Open(t.TempDir())
	for _, name := range []string{"a", ".dead.devinfo", ".live.devinfo", ".other", "x.devinfo"} {
		must(t, os.WriteFile(d.Path(name), nil, 0o600))
	}
	must(t, os.Symlink("a", d.Path(".link.devinfo")), os.Mkdir(d.Path(".dir.devinfo"), 0o700))
	live := privatetest.Lock(t, d.Path(".live.devinfo"))
	sweep := func(want ...string) {
		t.Helper()
		var got []string
		must(t, d.Sweep(func(name string) { got = append(got, name) }))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("swept %q, want %q", got, want)
		}
	}
	sweep(".dead.devinfo")
	sweep()
	live.Close()
	sweep(".live.devinfo")
	expectEntries(t, d, ".dir.devinfo", ".link.devinfo", ".other", "a", "x.devinfo")
}

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
