// Peak runs a program and prints its peak resident memory in KiB:
//
//	peak STDIN-FILE PROGRAM
//
// The kernel's peak includes the parent's memory at the time of exec, so peak is a small program of its own.
package main

import (
	"os"
	"strconv"
	"syscall"
)

func main() {
	in, err := syscall.Open(os.Args[1], syscall.O_RDONLY, 0)
	exitOn(err)
	out, err := syscall.Open("/dev/null", syscall.O_WRONLY, 0)
	exitOn(err)
	pid, err := syscall.ForkExec(os.Args[2], os.Args[2:], &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{uintptr(in), uintptr(out), 2},
	})
	exitOn(err)
	var status syscall.WaitStatus
	var used syscall.Rusage
	_, err = syscall.Wait4(pid, &status, 0, &used)
	exitOn(err)
	os.Stdout.WriteString(strconv.FormatInt(used.Maxrss, 10) + "\n")
	os.Exit(status.ExitStatus())
}

func exitOn(err error) {
	if err != nil {
		os.Stderr.WriteString("peak: " + err.Error() + "\n")
		os.Exit(1)
	}
}
