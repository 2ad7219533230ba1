package store

import (
	"syscall"
	"time"
)

// nap sleeps in the kernel, for less than a second.
func nap(d time.Duration) { _ = syscall.Nanosleep(&syscall.Timespec{Nsec: int64(d)}, nil) }
