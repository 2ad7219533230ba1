package devinfo

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// ReadFile reads and validates the device-info file at path (section 4), which a
// CNI plugin knows as runtimeConfig.CNIDeviceInfoFile (section 5.1). A missing
// file is an error that is fs.ErrNotExist; a file that breaks the specification
// is an [*InvalidError] with every violation; otherwise the errors are those of
// [Parse]. Warnings are no errors: [Info.Validate] gives them again.
// Only regular files are read, at most 1 MiB, so ReadFile never blocks on a FIFO.
func ReadFile(path string) (*Info, error) {
	// Without O_NONBLOCK the open of a FIFO waits for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !stat.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file (mode %s)", path, stat.Mode())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	info, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if bad := info.Validate().Errors(); len(bad) > 0 {
		return nil, &InvalidError{Path: path, Violations: bad}
	}
	return info, nil
}
