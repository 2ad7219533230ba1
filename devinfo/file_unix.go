//go:build unix

package devinfo

import "syscall"

const nonblock = syscall.O_NONBLOCK // opening a FIFO does not wait for a writer
