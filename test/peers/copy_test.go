package peers_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	nadutils "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/utils"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
)

// A test of pkg/dra compares cni-dra-driver's file with testdata. The paths are constants in Multus' library.
func TestMultusCopiesFileOfDriver(t *testing.T) {
	if !withOwnRun(t) {
		return
	}
	const resource, id = "example.com/vf", "0000:03:00.5"
	network := filepath.Join(devinfo.CNIDir, "net-abc_net1")
	if err := nadutils.CopyDeviceInfoForCNIFromDP(network, resource, id); err == nil {
		t.Error("copied a file that does not exist")
	}
	written, err := os.ReadFile("testdata/device-of-claim.json")
	must(t, err)
	must(t, store.Open(devinfo.DevicePluginDir).Write(devinfo.DevicePluginFile(resource, id), written))
	must(t, nadutils.CopyDeviceInfoForCNIFromDP(network, resource, id))
	info, err := devinfo.Parse(written)
	must(t, err)
	got, err := nadutils.LoadDeviceInfoFromCNI(network)
	if want := lookalike(info); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("read %+v (%v), want %+v", got, err, want)
	}
}

// withOwnRun runs the calling test again with an empty /var/run. It reports whether this is that run.
func withOwnRun(t *testing.T) bool {
	t.Helper()
	const key = "PEERS_TEST_OWN_RUN"
	if os.Getenv(key) != "" {
		must(t, syscall.Mount("tmpfs", "/var/run", "tmpfs", 0, ""))
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), key+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		if os.Getenv("DEVINFO_NETNS") == "must" {
			t.Fatalf("no user namespaces here: %v", err)
		}
		t.Skipf("no user namespaces here: %v", err)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}
