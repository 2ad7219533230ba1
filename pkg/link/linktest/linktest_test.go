package linktest_test

import (
	"net"
	"os"
	"testing"

	"devinfo-cni.io/pkg/link/linktest"
	"golang.org/x/sys/unix"
)

func TestRunIsInNamespacesOfItsOwn(t *testing.T) {
	outside := os.Getenv("LINKTEST_OUTSIDE") // what the first of the two processes saw
	inside, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if outside == "" {
		t.Setenv("LINKTEST_OUTSIDE", inside)
	}
	linktest.Run(t, func(t *testing.T) {
		if inside == outside || os.Geteuid() != 0 {
			t.Errorf("in %s as user %d, outside is %s", inside, os.Geteuid(), outside)
		}
		if all, err := net.Interfaces(); err != nil || len(all) != 1 {
			t.Logf("interfaces: %v, %v", all, err) // lo, and what modules put into every namespace
		}
		var run unix.Statfs_t
		if err := unix.Statfs("/run", &run); err != nil || run.Type != unix.TMPFS_MAGIC {
			t.Errorf("/run: type %#x, %v", run.Type, err)
		}
		if entries, err := os.ReadDir("/run"); err != nil || len(entries) != 0 {
			t.Errorf("/run has %d entries, %v", len(entries), err)
		}
	})
}

func TestRunInASubtest(t *testing.T) {
	ran := false
	t.Run("with a name/and (more)", func(t *testing.T) {
		linktest.Run(t, func(t *testing.T) {
			ran = true
			t.Run("further down", func(t *testing.T) {})
		})
	})
	if inChild := os.Getenv("DEVINFO_LINKTEST_CHILD") != ""; ran != inChild {
		t.Errorf("ran = %v in child = %v", ran, inChild)
	}
}

func TestRunPassesASkipOn(t *testing.T) {
	t.Run("skipped", func(t *testing.T) {
		defer func() {
			if !t.Skipped() {
				t.Error("was not skipped")
			}
		}()
		linktest.Run(t, func(t *testing.T) { t.Skip("as it should") })
	})
}

func TestNewNetnsIsGoneAfterTheTest(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		var path string
		t.Run("inner", func(t *testing.T) {
			path = linktest.NewNetns(t)
			here, _ := os.Readlink("/proc/thread-self/ns/net")
			err := linktest.InNetns(path, func() error {
				if there, _ := os.Readlink("/proc/thread-self/ns/net"); there == here {
					t.Errorf("still in %s", here)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	})
}
