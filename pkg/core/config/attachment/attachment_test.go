package attachment_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

const container = "0123456789abcdef0123456789abcdef"

const podArgs = "IgnoreUnknown=1;K8S_POD_NAMESPACE=prod;K8S_POD_NAME=dpdk-0;K8S_POD_UID=6a4c-11;K8S_POD_INFRA_CONTAINER_ID=" + container

func parse(t testing.TB, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(text))
	difftest.Must(t, err)
	if len(cfg.Problems) > 0 {
		t.Fatal(cfg.Problems[0])
	}
	return cfg
}

func TestNewJoinsConfigurationAndParameters(t *testing.T) {
	cfg := parse(t, `{"name": "net-a", "runtimeConfig": {"CNIDeviceInfoFile": "/run/x.json"}}`)
	a, err := attachment.New(cfg, attachment.Args{ContainerID: container, Netns: "/run/netns/p", IfName: "net1", CNIArgs: "A=1;B=2=3;A=4;C="}, "/infos")
	difftest.Must(t, err)
	want := &attachment.Attachment{
		Network: "net-a", ContainerID: container, IfName: "net1", Netns: "/run/netns/p",
		Args: pod.Args{{"A", "1"}, {"B", "2=3"}, {"A", "4"}, {"C", ""}}, // the order and duplicates stay
		Path: "/run/x.json",
	}
	difftest.Same(t, "attachment", a, want, cmpopts.IgnoreUnexported(*want))
}

func TestRuntimePathPrecedesAutomaticPath(t *testing.T) {
	for text, want := range map[string]string{
		`{"name": "n"}`: "",
		`{"name": "n", "runtimeConfig": {"CNIDeviceInfoFile": "/run/x"}}`:                           "/run/x",
		`{"name": "n", "deviceInfoFile": "auto"}`:                                                   "/infos/n-c1_net1",
		`{"name": "n", "deviceInfoFile": "auto", "runtimeConfig": {"CNIDeviceInfoFile": "/run/x"}}`: "/run/x",
		`{"name": "n", "deviceInfoFile": "auto", "runtimeConfig": {"CNIDeviceInfoFile": ""}}`:       "/infos/n-c1_net1",
		`{"name": "../a/b", "deviceInfoFile": "auto"}`:                                              "/infos/..-a-b-c1_net1",
	} {
		a, err := attachment.New(parse(t, text), attachment.Args{ContainerID: "c1", IfName: "net1"}, "/infos")
		if err != nil || a.Path != want {
			t.Errorf("%s: %q, %v; want %q", text, a.Path, err, want)
		}
	}
}

func TestAutomaticPathStaysInDirectory(t *testing.T) {
	for _, part := range []string{"..", "/", "../..", "/etc/passwd", ".", "a/../../b"} {
		for n := range 3 {
			parts := []string{"n", "c", "i"}
			parts[n] = part
			cfg := &config.Config{Name: parts[0], AutoFile: true}
			a, err := attachment.New(cfg, attachment.Args{ContainerID: parts[1], IfName: parts[2]}, "/infos")
			if err != nil || !strings.HasPrefix(a.Path, "/infos/") || strings.Count(a.Path, "/") != 2 {
				t.Errorf("%q: %q, %v", parts, a.Path, err)
			}
		}
	}
}

func TestNewKeepsValidArguments(t *testing.T) {
	for cniArgs, want := range map[string]pod.Args{
		"A":            nil,
		"=1":           nil,
		";":            nil,
		"A=1;":         {{"A", "1"}},
		"A=1;B;C=3":    {{"A", "1"}, {"C", "3"}},
		"A=1;;C=3":     {{"A", "1"}, {"C", "3"}},
		"A=1;=2;=;C=3": {{"A", "1"}, {"C", "3"}},
	} {
		a, err := attachment.New(parse(t, `{"name": "n"}`), attachment.Args{ContainerID: "c", IfName: "i", CNIArgs: cniArgs}, "/infos")
		if err == nil || !strings.HasPrefix(err.Error(), "CNI_ARGS: ") || !strings.Contains(err.Error(), cniArgs) {
			t.Errorf("%q: error %v", cniArgs, err)
		}
		if a == nil || a.Network != "n" || a.ContainerID != "c" || a.IfName != "i" || !reflect.DeepEqual(a.Args, want) {
			t.Errorf("%q: %+v", cniArgs, a)
		}
	}
}

func TestParseFileNameInvertsFileName(t *testing.T) {
	for _, test := range []struct{ network, containerID, ifName string }{
		{"net", "c1", "net1"}, {"default-sriov-net", "c1", "net1"}, {"a_b", "c0ffee", "net_1"}, {"n", "c1", "x-c1_y"},
	} {
		file := attachment.FileName(test.network, test.containerID, test.ifName)
		network, ifName, ok := attachment.ParseFileName(file, test.containerID)
		if !ok || network != test.network || ifName != test.ifName {
			t.Errorf("%s: %q, %q, %v", file, network, ifName, ok)
		}
	}
	for _, file := range []string{"net-c2_net1", "-c1_net1", "net-c1_", "net-c11_net1", "c1_net1", ""} {
		if network, ifName, ok := attachment.ParseFileName(file, "c1"); ok {
			t.Errorf("%q: %q, %q", file, network, ifName)
		}
	}
	if _, _, ok := attachment.ParseFileName("net-_net1", ""); ok {
		t.Error("an empty container ID is accepted")
	}
}

func TestBelongsToOtherContainerReadsFileName(t *testing.T) {
	const id, other = "c0ffee", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, network := range []string{"net", "sriov-net", "kube-system/sriov-net", "sriov.net", "a_b", "a-c0ffee_b", "net-" + other + "_x"} {
		for _, ifName := range []string{"net1", "net-1", "net_1", "net.1", "a-b_c.d"} {
			for _, name := range []func(network, containerID, ifName string) string{attachment.FileName, attachment.ClaimFileName} {
				if file := name(network, id, ifName); attachment.BelongsToOtherContainer(file, id) {
					t.Errorf("%s: reported as another container's", file)
				}
				if file := name(network, other, ifName); !attachment.BelongsToOtherContainer(file, id) {
					t.Errorf("%s: not recognized", file)
				}
			}
		}
	}
	for file, want := range map[string]bool{
		"pod1": false, "cnitool": false, "net1.json": false, "my_file": false, "my-file": false, "net-c0ffee": false, "-c0ffee_net1": false, "net-c0ffee_": false,
		"net-_net1": false, "net-" + other + "_sixteen-letters-": false, "net-default-" + other + "_eth0": true, // as in nerdctl, whose container IDs are <namespace>-<ID>
		"6e0c2d4f-58a1-4a0e-9d2e-2f7f6f1f0c11_net1": false, "net-" + other[1:] + "_net1": false, "net-" + other[1:] + "A_net1": false, "net-0" + other + "_net1": false, other + "_net1": false,
	} {
		difftest.Same(t, file, attachment.BelongsToOtherContainer(file, id), want)
	}
	if attachment.BelongsToOtherContainer("net-default-feed_eth0", "default-feed") {
		t.Error("an ID with a hyphen is not recognized")
	}
}

func TestCDIFillsInKindAndNameOrRejects(t *testing.T) {
	goldentest.Lines(t, "testdata/cdi.txt", func(text string) []string {
		cfg := parse(t, `{"name": "net-a", "cdi": `+text+`}`)
		a, err := attachment.New(cfg, attachment.Args{ContainerID: container, IfName: "net1", CNIArgs: podArgs}, "/infos")
		difftest.Must(t, err)
		got, err := a.CDI(cfg)
		if err != nil {
			return []string{difftest.As[*config.Problem](t, err).Error()}
		}
		return []string{fmt.Sprintf("%+v", got)}
	})
}
