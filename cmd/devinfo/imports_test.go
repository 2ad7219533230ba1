package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// largest is the limit for the stripped executable in bytes. The executable is started for every verb of every
// attachment.
const largest = 4_400_000

// denied lists packages that must not be in the executable, with the packages below them. Numbers in the
// reasons are start-up times of a plugin relative to a Go program that prints one line.
var denied = []struct{ path, why string }{
	{"k8s.io/client-go", "9.5, and 38 MB"},
	{"k8s.io/apimachinery", "part of client-go, with its init functions"},
	{"k8s.io/api", "types of the Kubernetes API, which the plugin does not use"},
	{"github.com/k8snetworkplumbingwg/network-attachment-definition-client", "9.2; 2.1 for its types alone"},
	{"tags.cncf.io/container-device-interface/pkg/cdi", "1.45, and it reads the CDI directories; package specs-go costs nothing"},
	{"google.golang.org/grpc", "the plugin is not a client of any server"},
	{"google.golang.org/protobuf", "part of grpc"},
	{"github.com/containernetworking/cni/pkg/skel", "reads standard input without a limit, and checks the namespace after printing; protocol.go replaces it"},
	{"go.opentelemetry.io", "cni/pkg/invoke imports it since 1.3.1, which adds 0.25 and 0.8 ms of init: stay with 1.3.0"},
	{"github.com/containernetworking/plugins/pkg/ip", "1.57, because of knftables; of this module, pkg/ns costs nothing"},
	{"sigs.k8s.io/knftables", "part of plugins/pkg/ip"},
	{"github.com/containernetworking/plugins/pkg/ipam", "1.76; delegates do IPAM"},
	{"github.com/k8snetworkplumbingwg/sriovnet", "1.66, because of net/http and regular expressions, and 1.5 MB; pkg/host/link replaces it"},
	{"github.com/Mellanox/rdmamap", "for comparison in tests only; reads all of /sys/class/infiniband for one device"},
	{"devinfo-cni.io/pkg/ctl/crosscheck", "calls sriovnet; for devinfoctl only"},
	{"github.com/spf13/afero", "part of sriovnet; imports net/http"},
	{"net/http", "most of the cost of sriovnet; the plugin is not a client of any server"},
	{"crypto/tls", "part of net/http"},
	{"golang.org/x/text", "Unicode tables, imported by afero and net/http"},
	{"golang.org/x/tools", "for captured hosts and lint only"},
	{"testing", "registers flags, and shows that a test package was imported"},
	{"devinfo-cni.io/pkg/host/capturefile", "captured hosts are for tests"},
	{"devinfo-cni.io/pkg/host/link/linkhost", "captured hosts are for tests"},
	{"devinfo-cni.io/pkg/host/link/linktest", "for tests only"},
	{"devinfo-cni.io/test", "test programs"},
	{"expvar", "registers an HTTP handler"},
}

// reason returns why a package is denied, or "".
func reason(path string) string {
	for _, d := range denied {
		if path == d.path || strings.HasPrefix(path, d.path+"/") {
			return d.why
		}
	}
	if strings.Contains(strings.ToLower(path), "yaml") {
		return "CNI configurations are JSON"
	}
	return ""
}

func TestExecutableHasNoDeniedPackage(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	difftest.Must(t, err)
	all := strings.Fields(string(out))
	if len(all) < 50 {
		t.Fatalf("go list gives %q", out)
	}
	for _, path := range all {
		if why := reason(path); why != "" {
			t.Errorf("%s is denied: %s", path, why)
		}
	}
}

// The test uses the Makefile's build flags.
func TestExecutableIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds a program")
	}
	name := filepath.Join(t.TempDir(), "devinfo")
	cmd := exec.Command("go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags", "-s -w", "-o", name, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOEXPERIMENT=nogreenteagc")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(name)
	difftest.Must(t, err)
	if info.Size() > largest {
		t.Errorf("the executable has %d bytes, %d too many: run go tool nm -size -sort size on an unstripped build to find the largest symbols", info.Size(), info.Size()-largest)
	}
}
