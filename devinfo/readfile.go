package devinfo

import (
	"fmt"

	"devinfo-cni.io/devinfo/atomicfile"
)

// ReadFile reads and validates the device-info file at path (section 4), which a
// CNI plugin knows as runtimeConfig.CNIDeviceInfoFile (section 5.1). A missing
// file is an error that is fs.ErrNotExist; a file that breaks the specification
// is an [*InvalidError] with every violation; otherwise the errors are those of
// [Parse]. Warnings are no errors: [Info.Validate] gives them again.
// Only regular files are read, at most 1 MiB, so ReadFile never blocks on a FIFO.
func ReadFile(path string) (*Info, error) {
	data, err := atomicfile.ReadFile(path, maxSize)
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
