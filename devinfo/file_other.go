//go:build !unix

package devinfo

const nonblock = 0 // no FIFO blocks here
