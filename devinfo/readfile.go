package devinfo

import (
	"fmt"

	"devinfo-cni.io/devinfo/atomicfile"
)

// ReadFile reads and validates the device-info file at path (section 4). A CNI plugin gets the path in
// runtimeConfig.CNIDeviceInfoFile (section 5.1).
//
// The error matches fs.ErrNotExist if the file is missing. It is an [*InvalidError] with all violations if the
// file breaks the specification, or an error of [Parse]. Warnings do not make ReadFile fail; [Info.Validate]
// returns them.
//
// ReadFile reads only regular files of at most 1 MiB, so a FIFO cannot block it.
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
