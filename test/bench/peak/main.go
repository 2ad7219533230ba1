// Peak runs a program and prints the most memory that it had resident, in KiB:
//
//	peak STDIN-FILE PROGRAM
//
// It is a program of its own because the kernel counts what the parent had at the
// time of exec; hence it does next to nothing.
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
