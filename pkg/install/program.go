package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// isOne reports whether two paths lead to the same file.
func isOne(a, b string) bool {
	one, err := os.Stat(a)
	other, failed := os.Stat(b)
	return err == nil && failed == nil && os.SameFile(one, other)
}

// Program copies an executable that is not a plugin to a path of the node. It may be called often, because
// it does not write if the file exists with the same content and mode. It returns an error if path is an
// unmarked file with other content. The warning is an error of setting the SELinux label.
func Program(from, path string) (warning, err error) {
	want, err := os.ReadFile(from)
	if err != nil {
		return nil, err
	}
	to, sum := file(path), checksum(want)
	has, err := os.ReadFile(path)
	same := err == nil && checksum(has) == sum
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err == nil && isOne(from, path):
		return nil, nil
	case err == nil && !same && !to.marked():
		return nil, fmt.Errorf("%s is a different program: move it away", path)
	}
	if err := to.mark(sum); err != nil {
		return nil, err
	}
	if stat, err := os.Lstat(path); same && err == nil && stat.Mode().IsRegular() && safeMode(stat) {
		return nil, nil
	}
	return to.put(want, 0o755)
}

// RemoveProgram removes the program at path and its mark if [Program] installed it, else nothing.
func RemoveProgram(path string) error {
	if to := file(path); to.marked() {
		return to.remove()
	}
	return nil
}
