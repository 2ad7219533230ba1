package attachment_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/attachment"
	"devinfo-cni.io/pkg/config"
)

func cdi(t *testing.T, text string) (*config.CDI, error) {
	t.Helper()
	cfg := parse(t, `{"name": "net-a", "cdi": `+text+`}`)
	a, err := attachment.New(cfg, attachment.Args{ContainerID: container, IfName: "net1", CNIArgs: podArgs}, "/infos")
	must(t, err)
	return a.CDI(cfg)
}

func TestCDIDeviceIsNamedAsConfigured(t *testing.T) {
	const ours = "devinfo-cni.io/attachment"
	for text, want := range map[string]*config.CDI{
		`null`:                             nil,
		`false`:                            nil,
		`true`:                             {Kind: ours, Name: container + ":net1"},
		`{"kind": "vendor.example/class"}`: {Kind: "vendor.example/class", Name: container + ":net1"},
		`{"name": "{podUID}.{podName}-{ifName}"}`:      {Kind: ours, Name: "6a4c-11.dpdk-0-net1"},
		`{"name": "{podUID}", "kind": "a/b"}`:          {Kind: "a/b", Name: "6a4c-11"},
		`{"name": "x{containerID:12}", "kind": "a/b"}`: {Kind: "a/b", Name: "x0123456789ab"},
		`{"name": "x-0123456789ab"}`:                   {Kind: ours, Name: "x-0123456789ab"}, // the value counts
		`{"name": "{podUID}", "kind": "` + ours + `"}`: {Kind: ours, Name: "6a4c-11"},
		`{"socketDir": "/run/<&>/{podUID}-{ifName}"}`:  {Kind: ours, Name: container + ":net1", SocketDir: "/run/<&>/6a4c-11-net1"},
	} {
		got, err := cdi(t, text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestBadCDINamesAreProblems(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind": "vendor"}`:                            `cdi.kind: "vendor" is not supported: want vendor/class, such as devinfo-cni.io/attachment`,
		`{"name": "a/b"}`:                               `cdi.name: "a/b" is not supported: want letters, digits`,
		`{"name": "{podID}"}`:                           `cdi.name: {podID} is not supported: want one of the placeholders`,
		`{"socketDir": "{uid}"}`:                        `cdi.socketDir: {uid} is not supported: want one of the placeholders`,
		`{"name": "{containerID:1}"}`:                   `cdi.name: {containerID:1} is not supported: want one of the placeholders`,
		`{"kind": "nvidia.com/gpu", "name": "0"}`:       `cdi.name: "0" is not supported: want a name with the pod's UID or the first 12 characters of the container ID in it`,
		`{"kind": "a/b", "name": "{podName}-{ifName}"}`: `cdi.name: "dpdk-0-net1" is not supported: want a name with the pod's UID`,
		`{"name": "static"}`:                            `cdi.name: "static" is not supported: want a name with the pod's UID`,
		`{"name": "{network}"}`:                         `cdi.name: "net-a" is not supported: want a name with the pod's UID`,
		`{"name": "0123456789a"}`:                       `cdi.name: "0123456789a" is not supported: want a name with the pod's UID`,
	} {
		got, err := cdi(t, text)
		var problem *config.Problem
		if !errors.As(err, &problem) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %+v, %v, want %s", text, got, err, want)
		}
	}
}
