package devinfo_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo"
)

func write(t *testing.T, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "net1")
	must(t, os.WriteFile(path, []byte(data), 0o644))
	return path
}

func TestReadFileNamesTheFileInItsErrors(t *testing.T) {
	huge := write(t, "{")
	must(t, os.Truncate(huge, 1<<30)) // a sparse file, so the test writes no data
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755)) // TempDir applied the umask
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	for path, want := range map[string]string{
		t.TempDir():                        ": not a regular file (mode drwxr-xr-x)",
		huge:                               ": too large: more than 1 MiB",
		write(t, `[]`):                     ": device-info is a JSON array: must be one JSON object (Device Information Specification, 4)",
		write(t, `{"version": "2.0.0"}`):   `: device-info version "2.0.0" is not supported: this package reads 1.x and implements 1.1.0 (Device Information Specification, 3.1.2)`,
		filepath.Join(t.TempDir(), "none"): ": no such file or directory",
		write(t, `{"type": "vhost-user", "version": "1.9.0", "vhost-user": {"mode": "both", "path": ""}}`): `: invalid device-info: ` + // errors only, without the warning for 1.9.0
			`$.vhost-user.mode: "both": must be "client" or "server" (Device Information Specification, 3.1.5.1);` +
			` $.vhost-user.path: missing: required when type is "vhost-user" (Device Information Specification, 3.1.5.2)`,
	} {
		i, err := devinfo.ReadFile(path)
		if i != nil || err == nil || strings.TrimPrefix(err.Error(), "open ") != path+want {
			t.Errorf("got  %v\nwant %s%s", err, path, want)
		}
		if errors.Is(err, fs.ErrNotExist) != strings.HasSuffix(path, "/none") || errors.As(err, new(*devinfo.VersionError)) != strings.Contains(want, "2.0.0") {
			t.Errorf("%s: got %#v", path, err)
		}
		if invalid := new(devinfo.InvalidError); errors.As(err, &invalid) && (invalid.Path != path || len(invalid.Violations) != 2) {
			t.Errorf("got %+v", invalid)
		}
	}
}

func TestReadFileAcceptsWarnings(t *testing.T) {
	i, err := devinfo.ReadFile(write(t, `{"type": "vhost-user", "version": "1.9.0", "vhost-user": {"mode": "client", "path": "a.sock"}}`))
	if err != nil || i.VhostUser.Path != "a.sock" || len(i.Validate().Warnings()) != 2 {
		t.Errorf("got %v, %v", i, err)
	}
}

func Example() {
	info, err := devinfo.ReadFile("testdata/npwg/4.3-pci.json")
	if err != nil {
		log.Fatal(err)
	}
	if info.Type == devinfo.TypePCI {
		fmt.Println("VF", info.PCI.Address, "of", info.PCI.PFAddress)
	}
	// Output: VF 0000:01:02.2 of 0000:01:02.0
}

func ExampleDevicePluginFile() {
	fmt.Println(devinfo.DevicePluginDir + "/" + devinfo.DevicePluginFile("vendor.example/vf", "0000:03:00.2"))
	// Output: /var/run/k8s.cni.cncf.io/devinfo/dp/vendor.example-vf-0000:03:00.2-device.json
}
