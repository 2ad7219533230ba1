package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"devinfo-cni.io/test/sandbox"
	"devinfo-cni.io/test/shapes"
)

// The limits for an ADD of any configuration, in MB and milliseconds. ADD may refuse it.
const (
	mostMemory    = 134 // 128 MiB
	mostProcessor = 2000
)

// shapesOf measures the ADD of large configurations, and of small ones that grow.
func shapesOf(t *table) error {
	const quiet = "#!/bin/sh\ncat >/dev/null\necho '{\"cniVersion\": \"1.0.0\"}'\n"
	if err := os.WriteFile(filepath.Join(programs, shapes.Delegate), []byte(quiet), 0o755); err != nil {
		return err
	}
	for n, s := range shapes.All() {
		p := plugin{name: "devinfo", config: func(string) string { return s.Keys }, ifName: ifName}
		add, del, err := p.calls(fmt.Sprint("s", n))
		if err != nil {
			return err
		}
		mb, ms, err := peak(add)
		if ended := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ended) {
			return err
		}
		_, _ = del.try() // so that the next round adds it again; DEL refuses a configuration that ADD has refused
		t.add(row{"ADD of 1.5 MB, " + s.Name + ", memory", mb, "MB", mostMemory})
		t.add(row{"ADD of 1.5 MB, " + s.Name + ", processor time", ms, "ms", mostProcessor})
	}
	return nil
}

// peak returns the peak memory of a call in MB, and its processor time in milliseconds, with that of its delegates.
func peak(j job) (mb, ms float64, err error) {
	cmd := exec.Command(filepath.Join(sandbox.Bin, "bench/peak"), j.stdin, j.program)
	cmd.Env = j.env
	out, err := cmd.Output()
	var kib int
	if _, unread := fmt.Sscan(string(out), &kib, &ms); unread != nil {
		return 0, 0, errors.Join(err, unread)
	}
	return float64(kib) * 1024 / 1e6, ms, err
}
