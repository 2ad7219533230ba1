package install

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// selinux is the extended attribute that contains the SELinux label of a file, see selinux(8).
const selinux = "security.selinux"

// inherit sets the SELinux label of a file to that of dir, if dir has one. Otherwise a file that a
// container creates may get the label of the container, and the runtime may not be allowed to run it.
func inherit(f *os.File, dir string) error {
	want, err := label(func(to []byte) (int, error) { return unix.Getxattr(dir, selinux, to) })
	if err == nil && want != nil {
		var has []byte
		has, err = label(func(to []byte) (int, error) { return unix.Fgetxattr(int(f.Fd()), selinux, to) })
		if err == nil && !bytes.Equal(has, want) {
			err = unix.Fsetxattr(int(f.Fd()), selinux, want, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: cannot set the SELinux label of %s, %q: %w: allow the agent to relabel, or run restorecon on the node",
			f.Name(), dir, bytes.TrimRight(want, "\x00"), err)
	}
	return nil
}

// label reads a label. It returns nil if the file or the kernel has none.
func label(read func(to []byte) (int, error)) ([]byte, error) {
	text := make([]byte, 4096) // longer than the labels of any policy
	n, err := read(text)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return text[:n], nil
}
