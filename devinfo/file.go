package devinfo

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// The directories of device-info files written by device plugins (section 4.1) and by CNI plugins (4.2).
const (
	DevicePluginDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"
	CNIDir          = "/var/run/k8s.cni.cncf.io/devinfo/cni"
)

// DevicePluginFile returns the file name, in [DevicePluginDir], for a device of a device plugin's resource,
// such as vendor.example/name (section 4.1). It replaces "/" with "-", as Multus does.
func DevicePluginFile(resourceName, deviceID string) string {
	return strings.ReplaceAll(resourceName+"-"+deviceID+"-device.json", "/", "-")
}

// ReadFile reads and validates the device-info file at path (section 4). A CNI plugin gets the path in
// runtimeConfig.CNIDeviceInfoFile (section 5.1).
//
// The error matches fs.ErrNotExist if the file is missing. It is an [*InvalidError] with all violations if the file
// breaks the specification, or an error of [Parse]. Warnings do not make ReadFile fail; [Info.Validate] returns them.
//
// ReadFile reads only regular files of at most 1 MiB, so a FIFO cannot block it.
func ReadFile(path string) (*Info, error) {
	data, err := readFile(path)
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

func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
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
	if len(data) > maxSize {
		return nil, fmt.Errorf("%s: device-info has more than 1 MiB", path)
	}
	return data, err
}
