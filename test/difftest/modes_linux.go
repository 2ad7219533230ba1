package difftest

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// WithModes calls f on a thread to which the modes of files apply, as they do not apply to root.
func WithModes(t testing.TB, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	Must(t, unix.Capget(&header, &has[0]))
	bound := has
	bound[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	Must(t, unix.Capset(&header, &bound[0]))
	defer func() { Must(t, unix.Capset(&header, &has[0])) }()
	f()
}
