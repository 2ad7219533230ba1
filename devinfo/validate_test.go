package devinfo_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo"
)

func TestValidateReportsEveryViolationInFull(t *testing.T) {
	data, err := os.ReadFile(npwg + "violations.txtar")
	must(t, err)
	for _, text := range strings.Split("\n"+string(data), "\n-- ")[1:] {
		name, text, _ := strings.Cut(text, " --\n")
		t.Run(name, func(t *testing.T) {
			var input string
			var reader, declared []string
			for line := range strings.Lines(text) {
				line = strings.TrimSuffix(line, "\n")
				strict, isDeclared := strings.CutPrefix(line, "declared ")
				switch {
				case isDeclared:
					declared = append(declared, strict)
				case strings.HasPrefix(line, "error ") || strings.HasPrefix(line, "warning "):
					reader = append(reader, line)
				default:
					input += line
				}
			}
			i := parse(t, input)
			wantViolations(t, "Validate", i.Validate(), reader)
			wantViolations(t, "ValidateDeclared", i.ValidateDeclared(), declared)
		})
	}
}

func wantViolations(t *testing.T, method string, got devinfo.Violations, want []string) {
	t.Helper()
	var lines []string
	errs, warnings := got.Errors(), got.Warnings()
	for _, v := range got {
		if slices.Contains(errs, v) {
			lines = append(lines, "error "+v.String())
		}
		if slices.Contains(warnings, v) {
			lines = append(lines, "warning "+v.String())
		}
	}
	equal(t, method, lines, want)
}

func TestViolationPrintsAsOneShortLine(t *testing.T) {
	i := parse(t, `{"type": {"a":`+"\n"+`"`+"\u009b"+`2J"}}`)
	want := []string{
		"error $.type: {\"a\":\"\ufffd2J\"}: must be a string (Device Information Specification, 3.1.1)",
		`error $.version: "` + strings.Repeat("1", 119) + `...: must be a version MAJOR.MINOR.PATCH (Device Information Specification, 3.1.2)`,
	}
	i.Version = strings.Repeat("1", 200)
	wantViolations(t, "Validate", i.Validate(), want)
	i.Version = strings.Repeat("1", 118) // 120 characters with its quotes
	equal(t, "cut", strings.Contains(i.Validate()[1].String(), "..."), false)
}

func TestSetValueReplacesMalformedOne(t *testing.T) {
	i := parse(t, `{"type":"pci","version":"1.1.0","pci":{"pci-address":5}}`)
	i.PCI.Address = "0000:3b:00.2"
	wantViolations(t, "Validate", i.Validate(), nil)
	equal(t, "encoded", parse(t, string(i.Encode())).PCI.Address, "0000:3b:00.2")
}

func TestDeviceReturnsMapOfType(t *testing.T) {
	i := full()
	for typ, want := range map[devinfo.Type]devinfo.Device{
		devinfo.TypePCI: i.PCI, devinfo.TypeVDPA: i.VDPA, devinfo.TypeVhostUser: i.VhostUser, devinfo.TypeMemif: i.Memif, "": nil, "other": nil,
	} {
		i.Type = typ
		equal(t, string(typ), i.Device(), want)
		equal(t, string(typ)+" without map", (&devinfo.Info{Type: typ}).Device(), nil) // nil itself, not a typed nil
	}
	var none *devinfo.Info
	equal(t, "of nil", none.Device(), nil)
}

func TestTextsReturnsStringsOfDevice(t *testing.T) {
	for text, want := range map[string]map[string]string{
		`{"memif": {"mode": "c"}}`: {}, `{"type": "pci"}`: {},
		`{"type": "pci", "pci": {"pci-address": "a", "rdma-device": 5, "x": "y", "n": 1, "PF-pci-address": "b"}, "memif": {"mode": "c"}}`: {"pci-address": "a", "x": "y"},
	} {
		equal(t, text, parse(t, text).Texts(), want)
	}
}

func TestMapsReturnsTypesOfPresentMaps(t *testing.T) {
	for text, want := range map[string][]devinfo.Type{
		`{}`: nil, `{"type": "pci"}`: nil, `{"pci": 5}`: nil, `{"type": "pci", "memif": {}, "vdpa": {}}`: {devinfo.TypeVDPA, devinfo.TypeMemif},
	} {
		equal(t, text, parse(t, text).Maps(), want)
	}
}

func TestKeysMatchSpecification(t *testing.T) {
	for of, want := range map[devinfo.Type][]string{
		"":                    {"type", "version", "pci", "vdpa", "vhost-user", "memif"},
		devinfo.TypePCI:       {"pci-address", "vhost-net", "rdma-device", "pf-pci-address", "representor-device"},
		devinfo.TypeVDPA:      {"parent-device", "driver", "path", "pci-address", "pf-pci-address", "representor-device"},
		devinfo.TypeVhostUser: {"mode", "path"},
		devinfo.TypeMemif:     {"role", "path", "mode"},
		"version":             nil,
		"other":               nil,
	} {
		equal(t, string(of), devinfo.Keys(of), want)
	}
}

const npwg = "testdata/npwg/"

func vhostUser(mode, path string) *devinfo.Info {
	return &devinfo.Info{Type: "vhost-user", Version: "1.1.0", VhostUser: &devinfo.VhostUser{Mode: mode, Path: path}}
}

// The examples of sections 4.3 and 6.1.2, with their errors corrected, and the expected information.
var examples = map[string]*devinfo.Info{
	"4.3-pci.json": {Type: "pci", Version: "1.1.0", PCI: &devinfo.PCI{
		Address: "0000:01:02.2", PFAddress: "0000:01:02.0"}},
	"4.3-vdpa.json": {Type: "vdpa", Version: "1.1.0", VDPA: &devinfo.VDPA{
		ParentDevice: "vdpa3", Driver: "vhost", Path: "/dev/vdpa-vhost0"}},
	"4.3-vhost-user.json": vhostUser("server", "/var/run/vhost.sock"),
	"6.1.2-net1.json": {Type: "pci", Version: "1.1.0", PCI: &devinfo.PCI{
		Address: "0000:18:02.5", PFAddress: "0000:18:00.0"}},
	"6.1.2-net2.json": {Type: "pci", Version: "1.1.0", PCI: &devinfo.PCI{
		Address: "0000:18:0a.2", VhostNet: "/dev/vhost-net", PFAddress: "0000:18:00.1"}},
	"6.1.2-net3.json": vhostUser("client", "/var/run/net3/vhost.sock"),
	"6.1.2-virtio0.json": {Type: "vdpa", Version: "1.1.0", VDPA: &devinfo.VDPA{
		ParentDevice: "vdpa2", Driver: "vhost", Path: "/dev/vhost-vdpa0",
		Address: "0000:02:01.6", PFAddress: "0000:02:01.0"}},
}

func TestExamplesOfSpecificationAreValid(t *testing.T) {
	files, err := filepath.Glob(npwg + "*.json")
	must(t, err)
	equal(t, "files", len(files), len(examples))
	for name, want := range examples {
		got, err := devinfo.ReadFile(npwg + name)
		must(t, err)
		equal(t, name, got, want)
		equal(t, name, append(got.Validate(), got.ValidateDeclared()...), devinfo.Violations(nil))
	}
}

// The kubelet repeats the error of an ADD in the events of a pod.
func TestErrorListsAtMostTenViolations(t *testing.T) {
	for number, end := range map[int]string{1: ": missing: ", 10: ": missing: ", 11: "; 1 more", 500: "; 490 more"} {
		text := devinfo.Violations(make([]devinfo.Violation, number)).Err().Error()
		if !strings.HasSuffix(text, end) || strings.Count(text, ": missing: ") != min(number, 10) {
			t.Errorf("got %s", text)
		}
	}
}

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
		huge:                               ": device-info has more than 1 MiB",
		write(t, `[]`):                     ": device-info is a JSON array: must be one JSON object (Device Information Specification, 4)",
		write(t, `{"version": "2.0.0"}`):   `: device-info version "2.0.0" is not supported: this package reads 1.x and implements 1.1.0 (Device Information Specification, 3.1.2)`,
		filepath.Join(t.TempDir(), "none"): ": no such file or directory",
		write(t, `{"type": "vhost-user", "version": "1.9.0", "vhost-user": {"mode": "both", "path": "/a"}}`): `: invalid device-info: ` + // errors only, without the warning for 1.9.0
			`$.vhost-user.mode: "both": must be "client" or "server" (Device Information Specification, 3.1.5.1)`,
		"/proc/self/mem": ": input/output error",
	} {
		i, err := devinfo.ReadFile(path)
		if path == "/proc/self/mem" && errors.Is(err, fs.ErrNotExist) {
			continue // not on Linux
		}
		if i != nil || err == nil || strings.TrimPrefix(strings.TrimPrefix(err.Error(), "open "), "read ") != path+want {
			t.Errorf("got  %v\nwant %s%s", err, path, want)
		}
		if errors.Is(err, fs.ErrNotExist) != strings.HasSuffix(path, "/none") || errors.As(err, new(*devinfo.VersionError)) != strings.Contains(want, "2.0.0") {
			t.Errorf("%s: got %#v", path, err)
		}
		if invalid := new(devinfo.InvalidError); errors.As(err, &invalid) && (invalid.Path != path || len(invalid.Violations) != 1) {
			t.Errorf("got %+v", invalid)
		}
	}
}

func TestReadFileAcceptsWarnings(t *testing.T) {
	i, err := devinfo.ReadFile(write(t, `{"type": "vhost-user", "version": "1.9.0", "vhost-user": {"mode": "client", "path": "a.sock"}}`))
	must(t, err, i.Validate().Err())
	equal(t, "path, and warnings", []any{i.VhostUser.Path, len(i.Validate().Warnings())}, []any{"a.sock", 2})
}

func ExampleDevicePluginFile() {
	fmt.Println(devinfo.DevicePluginDir + "/" + devinfo.DevicePluginFile("vendor.example/vf", "0000:03:00.2"))
	// Output: /var/run/k8s.cni.cncf.io/devinfo/dp/vendor.example-vf-0000:03:00.2-device.json
}
