//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

// TestMain runs the plugins from memory, because the machine fetches a page of a file below /host from the host each
// time.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "devinfo" { // the runtime runs this program as devinfo, see switchDir
		os.Exit(devinfo())
	}
	if os.Getenv("DEVINFO_VM") != "" {
		if err := os.CopyFS(plugins, os.DirFS("bin")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// run runs a command, and returns its output.
func run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

var (
	needs      = linktest.NeedsMachine
	must       = difftest.Must
	same       = difftest.Same
	eventually = difftest.Eventually // for changes that the kernel makes in the background
)

func read(t *testing.T, path string) string {
	t.Helper()
	return strings.TrimSpace(difftest.Read(t, path))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// pod creates a network namespace until the end of the test. Physical interfaces in it then return to the machine.
func pod(t *testing.T, name string) (netns string) {
	t.Helper()
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
	return "/run/netns/" + name
}

// onHost reports whether the interface is in the machine's own namespace.
func onHost(name string) bool { return exists("/sys/class/net/" + name) }

// inPod reports whether the interface is in the namespace of that name.
func inPod(pod, name string) bool {
	return exec.Command("ip", "-n", pod, "link", "show", "dev", name).Run() == nil
}

func mac(t *testing.T, name string) string { return read(t, "/sys/class/net/"+name+"/address") }

// drive binds the vDPA device vpvdpa0 to another driver; "" = to none.
func drive(t *testing.T, driver string) {
	t.Helper()
	const device, dir = "vpvdpa0", "/sys/bus/vdpa/devices/vpvdpa0"
	override := driver
	if driver == "" {
		override = "none"
	}
	write(t, dir+"/driver_override", override)
	if exists(dir + "/driver") {
		write(t, dir+"/driver/unbind", device)
	}
	if driver == "" {
		return
	}
	// The bus may have bound the driver already when the override was set.
	_ = os.WriteFile("/sys/bus/vdpa/drivers_probe", []byte(device), 0)
	eventually(t, device+" is on "+driver, func() bool {
		now, _ := os.Readlink(dir + "/driver")
		return filepath.Base(now) == driver
	})
}

// vfsBack creates the VFs of the second igb card again, because tests may remove them.
func vfsBack(t *testing.T) {
	t.Helper()
	const file = "/sys/bus/pci/devices/0000:41:00.0/sriov_numvfs"
	write(t, file, "0")
	write(t, file, "2")
	for vf, name := range map[string]string{"0000:41:10.0": "enp65s0v0", "0000:41:10.2": "enp65s0v1"} {
		run(t, "ip", "link", "set", interfaceOf(t, vf), "name", name)
	}
}
