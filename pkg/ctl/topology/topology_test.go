package topology_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/topology"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// broken are switches that return an error.
type broken struct{ hostdev.Eswitches }

func (broken) Switchdev(string) (bool, error) { return false, errors.New("the switch is silent") }
func (broken) Representor(string, link.Flavour, int) (name, source string, err error) {
	return "", "", errors.New("not to be asked")
}

func TestSilentSwitchIsOneWarning(t *testing.T) {
	top, err := topology.Read(hostdev.Host{Sys: sysfs.New(capturetest.Load(t, "mlx5-legacy").Sys()), Eswitches: broken{}}, nil, nil)
	if err != nil || len(top.Devices) != 2 || !cmp.Equal(top.Warnings, []string{"the switch is silent"}) {
		t.Errorf("%+v, %v", top, err)
	}
}

// A read that fails is an error, or changes nothing.
func TestTreeDoesNotOmitWhatItCannotRead(t *testing.T) {
	want := ""
	capturetest.EachFailure(capturetest.Load(t, "rxe-rdma").Sys(), func(sys fs.FS, failed *string) {
		top, err := topology.Read(hostdev.Host{Sys: sysfs.New(sys)}, nil, nil)
		if want == "" {
			difftest.Must(t, err)
			want = top.Tree()
		}
		if err == nil && top.Tree() != want {
			t.Errorf("%s fails, and the tree is\n%s", *failed, top.Tree())
		}
	})
}

// A network may name any auxiliary device, also one whose interface is in the pod.
func TestHeldDeviceIsInTreeWithoutInterface(t *testing.T) {
	const name = "mlx5_core.eth.0"
	holder := node.Identity{Network: "blue", ContainerID: "c0ffee", Interface: "net1"}
	for _, attachments := range [][]node.Attachment{nil, {{Identity: holder, Type: "auxiliary", Device: name, Lease: journal.Exclusive}}} {
		top, err := topology.Read(hostdev.Host{Sys: sysfs.New(capturetest.Load(t, "mlx5-switchdev").Sys())}, nil, attachments)
		difftest.Must(t, err)
		shown := strings.Contains(top.Tree(), name+"  auxiliary device\n│  └─ held by blue/c0ffee/net1\n")
		if shown != (attachments != nil) || strings.Contains(top.Tree(), name) != shown {
			t.Errorf("%v: %s", attachments, top.Tree())
		}
	}
}
