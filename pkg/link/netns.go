package link

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ourNetns is the network namespace of the thread that opens it.
const ourNetns = "/proc/thread-self/ns/net"

// within calls f in the network namespace at path; "" is where we are.
func within(path string, f func() error) error {
	if path == "" {
		return f()
	}
	there, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return netnsError(err)
	}
	defer unix.Close(there)

	runtime.LockOSThread()
	lost := false
	defer func() {
		if !lost { // else the thread serves nobody else, and ends with its goroutine
			runtime.UnlockOSThread()
		}
	}()
	here, err := unix.Open(ourNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", ourNetns, err)
	}
	defer unix.Close(here)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		return netnsError(err)
	}
	err = f()
	if back := unix.Setns(here, unix.CLONE_NEWNET); back != nil {
		lost = true
		err = errors.Join(err, fmt.Errorf("leave the network namespace: %w", back))
	}
	return err
}

// netnsError takes the error of opening a path or of setns(2), which says
// EINVAL for what is no network namespace.
func netnsError(err error) error {
	if absent(err) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w", ErrNoNetns, err)
	}
	return fmt.Errorf("enter the network namespace: %w", err)
}
