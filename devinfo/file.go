package devinfo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	return io.ReadAll(io.LimitReader(f, maxSize+1)) // Parse refuses what is longer
}

// WriteFile validates device information and writes it to the file at path (section 4), with mode 0644 whatever the umask.
// If info has no version, the file gets [SpecVersion], or if its version is older than one of its keys. A CNI plugin does
// this in ADD, and calls [RemoveFile] in DEL. A device plugin names the file by [DevicePluginFile].
//
// The error is an [*InvalidError] if info breaks the specification; the file is unchanged then, as after any error.
// Readers see either the old or the new content. WriteFile creates missing directories with mode 0755, and leaves existing
// ones as they are. It replaces a symbolic link at path, but not a directory.
//
// Another program may have written the file before, such as Multus, which copies that of the device plugin. To keep what it
// says, read it and [Merge].
func WriteFile(path string, info *Info) error {
	if path == "" {
		return errors.New("device-info file: no path: a runtime passes runtimeConfig.CNIDeviceInfoFile only to a plugin with this capability")
	}
	complete := new(Info)
	if info != nil {
		complete = info.Clone()
	}
	complete.completeVersion()
	if bad := complete.Validate().Errors(); len(bad) > 0 {
		return &InvalidError{Path: path, Violations: bad}
	}
	data := complete.Encode()
	if _, err := Parse(data); err != nil { // it is too large, or Extra makes it unreadable
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	for tries := 1; ; tries++ {
		err := replace(path, data)
		if tries == maxTries || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// maxTries is a limit for the case that the devinfo plugin's garbage collection removes a temporary file, because it takes
// the writer for dead.
const maxTries = 1000

func replace(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".*.devinfo") // the name tells garbage collection what it is
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Chmod(0o644)
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name()) // the first error matters
	}
	return err
}

// makeDir creates a directory and its missing parents, whatever the umask.
func makeDir(path string) error {
	if stat, err := os.Stat(path); err == nil {
		if stat.IsDir() {
			return nil
		}
		return fmt.Errorf("%s: not a directory", path)
	}
	if parent := filepath.Dir(path); parent != path {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	const mode = 0o755
	err := os.Mkdir(path, mode)
	if err == nil {
		err = os.Chmod(path, mode)
	} else if errors.Is(err, fs.ErrExist) { // another process has created it meanwhile
		err = nil
	}
	return err
}

// RemoveFile removes the device-info file at path, or a symbolic link there. A missing file and an empty path are not errors,
// because DEL may be repeated, and ADD may have got no path (section 5.1). A directory at path is an error, and stays.
func RemoveFile(path string) error {
	stat, err := os.Lstat(path)
	if err == nil && stat.IsDir() {
		return fmt.Errorf("%s: is a directory: remove it, if nobody needs it", path)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
