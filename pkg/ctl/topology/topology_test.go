package topology_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/topology"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

func load(t *testing.T, name string) hostdev.Host {
	t.Helper()
	file := capturetest.Load(t, name)
	host, err := linkhost.New(file)
	difftest.Must(t, err)
	return hostdev.Host{Sys: sysfs.New(file.Sys()), Links: host.Links, Eswitches: host}
}

func tree(t *testing.T, host hostdev.Host, held ...node.Attachment) string {
	t.Helper()
	top, err := topology.Read(host, nil, held)
	difftest.Must(t, err)
	return top.Tree()
}

// broken are switches that return an error.
type broken struct{ hostdev.Eswitches }

func (broken) Switchdev(string) (bool, error) { return false, errors.New("the switch is silent") }
func (broken) Representor(string, link.Flavour, int) (name, source string, err error) {
	return "", "", errors.New("not to be asked")
}

func TestSilentSwitchIsOneWarning(t *testing.T) {
	host := load(t, "mlx5-legacy")
	host.Eswitches = broken{}
	top, err := topology.Read(host, nil, nil)
	if err != nil || len(top.Devices) != 2 || !cmp.Equal(top.Warnings, []string{"the switch is silent"}) {
		t.Errorf("%+v, %v", top, err)
	}
}

func TestDeviceIsFoundByAltName(t *testing.T) {
	host := load(t, "igb-sriov")
	for n := range host.Links {
		host.Links[n].AltNames = []string{"alt-" + host.Links[n].Name}
	}
	for _, l := range host.Links {
		if l.Parent == "" {
			continue
		}
		top, err := topology.Read(host, nil, nil)
		difftest.Must(t, err)
		if !top.Only(view.Named("alt-"+l.Name)) || !strings.Contains(top.Tree(), l.Parent) {
			t.Errorf("alt-%s: %s", l.Name, top.Tree())
		}
	}
}

// A rule may name an interface, whose device is found by another name.
func TestOfferOfInterfaceStandsWithItsDevice(t *testing.T) {
	for name, want := range map[string]string{"eth14": "interface eth14, shared x\n", "br0": "\nbr0  bridge, shared x\n"} {
		top, err := topology.Read(load(t, "mlx5-vdpa"), []state.Offered{{Name: "x", Ref: hostdev.Ref{Kind: hostdev.Bridge, IfName: name}, Sharing: "shared"}}, nil)
		difftest.Must(t, err)
		difftest.Contains(t, top.Tree(), want)
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

func TestHostWithoutDevicesPrintsMessage(t *testing.T) {
	difftest.Equal(t, tree(t, hostdev.Host{Sys: sysfs.New(fstest.MapFS{})}), "no network device\n")
}

func TestContainerIDsAreShortened(t *testing.T) {
	key := journal.Key{Network: "n", ContainerID: strings.Repeat("0123456789abcdef", 4), IfName: "net\x1b5"}
	a := node.Attachment{Key: key, Type: "vdpa", Device: "vdpa6", State: check.OK}
	memif := a
	memif.Type, memif.Device = "memif", "/run/x"
	difftest.Contains(t, tree(t, load(t, "mlx5-vdpa"), a, memif),
		"interface eth14\n│     └─ named by n/0123456789ab/net\\u001b5\n", "sockets\n└─ n/0123456789ab/net\\u001b5  memif /run/x\n")
}
