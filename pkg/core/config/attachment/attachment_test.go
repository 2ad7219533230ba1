package attachment_test

import (
	"fmt"
	"testing"

	"devinfo-cni.io/devinfo"
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

// The path from the runtime precedes the automatic one, which stays in its directory. Of CNI_ARGS the well-formed pairs stay,
// in their order.
func TestNewJoinsConfigurationAndParameters(t *testing.T) {
	for _, test := range []struct {
		keys, cniArgs, path string
		args                pod.Args
		err                 string
	}{
		{`"name": "n"`, "", "", nil, ""},
		{`"name": "n", "runtimeConfig": {"CNIDeviceInfoFile": "/run/x"}`, "A=1;B=2=3;A=4;C=", "/run/x", pod.Args{{"A", "1"}, {"B", "2=3"}, {"A", "4"}, {"C", ""}}, ""},
		{`"name": "n", "deviceInfoFile": "auto", "runtimeConfig": {"CNIDeviceInfoFile": "/run/x"}`, "", "/run/x", nil, ""},
		{`"name": "n", "deviceInfoFile": "auto", "runtimeConfig": {"CNIDeviceInfoFile": ""}`, "A", "/infos/n-a-..-c_net1", nil, "CNI_ARGS: "},
		{`"name": "../a/b", "deviceInfoFile": "auto"`, "A=1;=2;=;C=3", "/infos/..-a-b-a-..-c_net1", pod.Args{{"A", "1"}, {"C", "3"}}, "CNI_ARGS: "},
	} {
		params := attachment.Args{ContainerID: "a/../c", Netns: "/run/netns/p", IfName: "net1", CNIArgs: test.cniArgs}
		a, err := attachment.New(parse(t, "{"+test.keys+"}"), params, "/infos")
		if test.err == "" {
			difftest.Must(t, err)
		} else {
			difftest.Says(t, err, test.err, test.cniArgs)
		}
		want := &attachment.Attachment{Args: params, Network: a.Network, Pairs: test.args, Path: test.path}
		difftest.Same(t, test.keys, a, want)
	}
}

func TestOnlyWhatNamesDeviceOrInterfaceLeadsToOne(t *testing.T) {
	for text, none := range map[string]bool{
		`{}`: true, `{"pciBusID": ""}`: true, `{"resourceName": "vendor.example/vf"}`: true,
		`{"deviceID": "a"}`: false, `{"prevResult": {}}`: false, `{"delegates": [{"type": "x"}]}`: false,
	} {
		difftest.Same(t, text, attachment.LeadsToNoDevice(parse(t, text), nil), none)
		difftest.Same(t, text+" and nothing declared", attachment.LeadsToNoDevice(parse(t, text), &devinfo.Info{}), none)
		difftest.Same(t, text+" and a type", attachment.LeadsToNoDevice(parse(t, text), &devinfo.Info{Type: devinfo.TypeMemif}), false)
	}
}

func TestParseFileNameInvertsFileName(t *testing.T) {
	for _, test := range []struct{ network, containerID, ifName string }{
		{"net", "c1", "net1"}, {"default-sriov-net", "c1", "net1"}, {"a_b", "c0ffee", "net_1"}, {"n", "c1", "x-c1_y"},
	} {
		file := attachment.FileName(test.network, test.containerID, test.ifName)
		network, ifName, ok := attachment.ParseFileName(file, test.containerID)
		difftest.Same(t, file, []any{network, ifName, ok}, []any{test.network, test.ifName, true})
	}
	for _, file := range []string{"net-c2_net1", "-c1_net1", "net-c1_", "net-c11_net1", "c1_net1", ""} {
		_, _, ok := attachment.ParseFileName(file, "c1")
		difftest.Same(t, file, ok, false)
	}
	_, _, ok := attachment.ParseFileName("net-_net1", "")
	difftest.Same(t, "an empty container ID is accepted", ok, false)
}

func TestBelongsToOtherContainerReadsFileName(t *testing.T) {
	const id, other = "c0ffee", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, network := range []string{"net", "sriov-net", "kube-system/sriov-net", "sriov.net", "a_b", "a-c0ffee_b", "net-" + other + "_x"} {
		for _, ifName := range []string{"net1", "net-1", "net_1", "net.1", "a-b_c.d"} {
			for _, name := range []func(network, containerID, ifName string) string{attachment.FileName, attachment.ClaimFileName} {
				for of, want := range map[string]bool{id: false, other: true} {
					file := name(network, of, ifName)
					difftest.Same(t, file, attachment.BelongsToOtherContainer(file, id), want)
				}
			}
		}
	}
	for file, want := range map[string]bool{
		"pod1": false, "cnitool": false, "net1.json": false, "my_file": false, "my-file": false, "net-c0ffee": false, "-c0ffee_net1": false, "net-c0ffee_": false,
		"net-_net1": false, "net-" + other + "_sixteen-letters-": false, "net-" + other + "_": false, "-" + other + "_net1": true, "net-default-" + other + "_eth0": true, // as in nerdctl, whose container IDs are <namespace>-<ID>
		"6e0c2d4f-58a1-4a0e-9d2e-2f7f6f1f0c11_net1": false, "net-" + other[1:] + "_net1": false, "net-" + other[1:] + "A_net1": false, "net-0" + other + "_net1": false, other + "_net1": false,
	} {
		difftest.Same(t, file, attachment.BelongsToOtherContainer(file, id), want)
	}
	difftest.Same(t, "of an ID with a hyphen", attachment.BelongsToOtherContainer("net-default-feed_eth0", "default-feed"), false)
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
