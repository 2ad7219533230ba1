package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// largest is the size in bytes that the stripped executable may have. It is
// started anew for every verb of every attachment.
const largest = 5_500_000

// denied are packages that the executable must not contain, with what is below
// them, and why. The figures are start-up times of a plugin, a Go hello being 1.
var denied = []struct{ path, why string }{
	{"k8s.io/client-go", "9.5, and 38 MB"},
	{"k8s.io/apimachinery", "it comes with client-go, and brings its init"},
	{"k8s.io/api", "types of a server that is not talked to"},
	{"github.com/k8snetworkplumbingwg/network-attachment-definition-client", "9.2; its types alone 2.1"},
	{"tags.cncf.io/container-device-interface/pkg/cdi", "1.45, and it reads the CDI directories; specs-go costs nothing"},
	{"google.golang.org/grpc", "there is no server to talk to"},
	{"google.golang.org/protobuf", "it comes with grpc"},
	{"go.opentelemetry.io", "libcni from 1.3.1 on brings it, 1.53 and 0.8 ms of init: stay with 1.3.0"},
	{"github.com/containernetworking/plugins/pkg/ip", "1.57, by knftables"},
	{"github.com/containernetworking/plugins/pkg/ipam", "1.76; delegates do it"},
	{"golang.org/x/tools", "for captured hosts and lint"},
	{"testing", "it registers flags, and says that a test kit came along"},
	{"devinfo-cni.io/pkg/hosttxt", "captured hosts are for tests"},
	{"devinfo-cni.io/pkg/link/linkhost", "captured hosts are for tests"},
	{"devinfo-cni.io/pkg/link/linktest", "a test kit"},
	{"devinfo-cni.io/test", "test programs"},
	{"expvar", "it registers an HTTP handler"},
	{"net/http/pprof", "it registers HTTP handlers"},
	{"net/http/httptest", "a test kit"},
}

// reason says why a package is denied; "" = it is not.
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

func TestExecutableContainsNothingDear(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := strings.Fields(string(out))
	if len(paths) < 50 {
		t.Fatalf("go list gives %q", paths)
	}
	for _, path := range paths {
		if why := reason(path); why != "" {
			t.Errorf("%s is denied: %s", path, why)
		}
	}
}

func TestDenyListKnowsItsOwn(t *testing.T) {
	for path, want := range map[string]bool{
		"k8s.io/client-go/kubernetes": true, "k8s.io/apimachinery": true, "tags.cncf.io/container-device-interface/pkg/cdi": true,
		"tags.cncf.io/container-device-interface/specs-go": false, "sigs.k8s.io/yaml": true, "gopkg.in/yaml.v3": true, "go.yaml.in/yaml/v2": true,
		"testing": true, "testing/fstest": true, "testingx": false, "devinfo-cni.io/pkg/hosttxt/hosttxttest": true, "devinfo-cni.io/pkg/link": false,
		"github.com/containernetworking/plugins/pkg/ip": true, "github.com/containernetworking/plugins/pkg/ns": false,
		"google.golang.org/grpc/codes": true, "encoding/json": false, "net/http": false, "github.com/containernetworking/cni/libcni": false,
	} {
		if got := reason(path) != ""; got != want {
			t.Errorf("%s is denied: %v", path, got)
		}
	}
}

// The build is the Makefile's: without room between functions, which costs 2 % of the
// size and no time that could be measured.
func TestExecutableIsSmall(t *testing.T) {
	name := filepath.Join(t.TempDir(), "devinfo")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -funcalign=1", "-o", name, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", info.Size())
	if info.Size() > largest {
		t.Errorf("it has %d bytes, %d too many; go tool nm -size -sort size, on one that is not stripped, tells where they are", info.Size(), info.Size()-largest)
	}
}
