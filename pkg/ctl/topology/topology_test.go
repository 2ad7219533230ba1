package topology_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"devinfo-cni.io/pkg/check"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/topology"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/linkhost"
	"devinfo-cni.io/pkg/sysfs"
)

func load(t *testing.T, name string) (*sysfs.FS, *linkhost.Kernel) {
	t.Helper()
	file, err := hosttxt.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	host, err := linkhost.New(file)
	if err != nil {
		t.Fatal(err)
	}
	return sysfs.New(file.Sys()), host
}

func read(t *testing.T, name string, held ...node.Attachment) *topology.Topology {
	t.Helper()
	sys, host := load(t, "../../../testdata/hosts/"+name+".txtar")
	top, err := topology.Read(sys, host, host, nil, held)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func number(n int) *int { return &n }

func TestModelOfVDPAOnVFsAndSFs(t *testing.T) {
	a := func(typ, device string) node.Attachment {
		return node.Attachment{Key: journal.Key{Network: "n", ContainerID: "c", IfName: device}, Type: typ, Device: device}
	}
	sf, vf, socket, gone := a("vdpa", "vdpa6"), a("pci", "0000:65:00.2"), a("memif", "/run/x"), a("pci", "0000:65:00.7")
	want := &topology.Topology{
		Devices: []*topology.Node{{
			Kind: topology.PF, Name: "0000:65:00.0", Driver: "mlx5_core", Switchdev: true, VFs: &topology.VFs{Number: 4, Most: 8},
			Interfaces: []string{"enp101s0f0np0"}, RDMA: []string{"mlx5_0"},
			Below: []*topology.Node{
				{Kind: topology.VF, Name: "0000:65:00.2", Number: number(0), Driver: "mlx5_core", Interfaces: []string{"enp101s0f0v0"},
					RDMA: []string{"mlx5_2"}, Representor: "eth4", Attachments: []topology.Use{topology.Use(vf)}},
				{Kind: topology.VF, Name: "0000:65:00.3", Number: number(1), Driver: "mlx5_core", RDMA: []string{"mlx5_3"}, Representor: "eth5",
					Below: []*topology.Node{{Kind: topology.VDPA, Name: "vdpa:0000:65:00.3", Driver: "vhost_vdpa", Path: "/dev/vhost-vdpa-1"}}},
				{Kind: topology.VF, Name: "0000:65:00.4", Number: number(2), Driver: "mlx5_core", RDMA: []string{"mlx5_4"}, Representor: "eth6",
					Below: []*topology.Node{{Kind: topology.VDPA, Name: "vdpa4", Driver: "virtio_vdpa", Interfaces: []string{"eth12"}, Path: "virtio7"}}},
				{Kind: topology.VF, Name: "0000:65:00.5", Number: number(3), Driver: "mlx5_core", RDMA: []string{"mlx5_5"}, Representor: "eth7",
					Below: []*topology.Node{{Kind: topology.VDPA, Name: "vdpa5"}}},
				{Kind: topology.SF, Name: "mlx5_core.sf.2", Number: number(10), Representor: "eth8",
					Below: []*topology.Node{{Kind: topology.VDPA, Name: "vdpa6", Driver: "virtio_vdpa", Interfaces: []string{"eth14"}, Attachments: []topology.Use{topology.Use(sf)}}}},
				{Kind: topology.SF, Name: "mlx5_core.sf.3", Number: number(11), Representor: "eth9",
					Below: []*topology.Node{{Kind: topology.VDPA, Name: "vdpa7", Driver: "virtio_vdpa", Interfaces: []string{"eth13"}}}},
			},
		}},
		Elsewhere: []topology.Use{topology.Use(socket), topology.Use(gone)},
	}
	if diff := cmp.Diff(want, read(t, "mlx5-vdpa", sf, vf, socket, gone), cmpopts.IgnoreUnexported(topology.Use{})); diff != "" {
		t.Error(diff)
	}
}

// Each VF and each SF is drawn once, wherever it is.
func TestEveryFunctionIsDrawnOnce(t *testing.T) {
	names, err := filepath.Glob("../../../testdata/hosts/*.txtar")
	if err != nil || len(names) < 12 {
		t.Fatalf("%d hosts, %v", len(names), err)
	}
	for _, name := range names {
		sys, host := load(t, name)
		top, err := topology.Read(sys, host, host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := top.Tree(&b); err != nil {
			t.Fatal(err)
		}
		functions, _ := sys.Functions()
		for _, fn := range functions {
			if n := len(regexp.MustCompile(`(?m)^[│├└─ ]*`+fn.Address.String()+`  `).FindAllString(b.String(), -1)); n != 1 {
				t.Errorf("%s: %s is drawn %d times in\n%s", name, fn.Address, n, b.String())
			}
		}
	}
}

// broken is a switch that does not answer.
type broken struct{ *linkhost.Kernel }

func (broken) Switchdev(string) (bool, error) { return false, errors.New("the switch is silent") }
func (broken) Representor(string, link.Flavour, int) (string, bool, error) {
	return "", false, errors.New("not to be asked")
}

func TestSilentSwitchIsOneWarning(t *testing.T) {
	sys, host := load(t, "../../../testdata/hosts/mlx5-legacy.txtar")
	top, err := topology.Read(sys, host, broken{host}, nil, nil)
	if err != nil || len(top.Devices) != 2 || !cmp.Equal(top.Warnings, []string{"the switch is silent"}) {
		t.Errorf("%+v, %v", top, err)
	}
}

func TestHostWithoutDevicesIsSaidToBeOne(t *testing.T) {
	top, err := topology.Read(sysfs.New(fstest.MapFS{}), nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := top.Tree(&b); err != nil || b.String() != "no network device\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// A name may hold whatever a language takes for its own.
func TestNamesAreNotTakenForSyntax(t *testing.T) {
	const name = "a\"b\\c<d>&e#f`g\nh]"
	top := &topology.Topology{Devices: []*topology.Node{{Kind: topology.Other, Name: name, Representor: name,
		Attachments: []topology.Use{{Key: journal.Key{Network: name, ContainerID: "c", IfName: "i"}, State: check.Dead}}}}}
	for _, c := range []struct {
		format func(*strings.Builder) error
		line   *regexp.Regexp
		label  string
	}{
		{func(b *strings.Builder) error { return top.DOT(b) },
			regexp.MustCompile(`^(digraph devices \{|\}|  rankdir=LR;|  node \[shape=box, fontname="monospace"\];|  n\d+ \[label="(\\.|[^"\\])*"(, shape=ellipse)?(, color=[a-z0-9]+)?\];|  n\d+ -> n\d+( \[style=dashed, dir=none\])?;)$`),
			`a\"b\\c<d>&e#f` + "`" + `g h]`},
	} {
		var b strings.Builder
		if err := c.format(&b); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if !c.line.MatchString(strings.TrimSuffix(line, "\n")) {
				t.Errorf("not a line of the language: %s", line)
			}
		}
		if n := strings.Count(b.String(), c.label); n != 3 {
			t.Errorf("%q is there %d times in\n%s", c.label, n, b.String())
		}
	}
}

func TestContainerIDsAreShortenedForPeopleOnly(t *testing.T) {
	a := topology.Use{Key: journal.Key{Network: "n", ContainerID: strings.Repeat("0123456789abcdef", 4), IfName: "net1"}}
	if got := fmt.Sprint(a); got != "n/0123456789ab/net1" {
		t.Error(got)
	}
}

// What an attachment that has ended left is not held, and an attachment that has no
// device has lost none.
func TestAttachmentsAreWhereTheyBelong(t *testing.T) {
	a := func(ifName, typ, device string) node.Attachment {
		return node.Attachment{Pod: "shop/web-0", Key: journal.Key{Network: "n", ContainerID: "c", IfName: ifName}, Type: typ, Device: device, State: "ok"}
	}
	old := a("net1", "pci", "0000:65:00.2")
	old.State = check.Dead
	top := read(t, "mlx5-vdpa", old, a("net2", "memif", "/run/x"), a("net3", "pci", "0000:65:00.7"), a("net4", "", ""))
	var b strings.Builder
	if err := top.Tree(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"left by shop/web-0 net1 (n): dead\n",
		"sockets\n└─ shop/web-0 net2 (n)  memif /run/x\n",
		"devices that are gone\n└─ shop/web-0 net3 (n)  pci 0000:65:00.7\n",
		"attachments without a device\n└─ shop/web-0 net4 (n)\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// In a picture each attachment is below something, and has a colour.
func TestPicturesColourAttachmentsAndLetNoneFloat(t *testing.T) {
	top := &topology.Topology{Elsewhere: []topology.Use{{Key: journal.Key{Network: "n", ContainerID: "c", IfName: "i"}, Type: "vhost-user", Device: "/s", State: check.Adding}}}
	for want, format := range map[string]func(*strings.Builder) error{
		"n1 [label=\"attachment\\nn/c/i: adding\\nvhost-user /s\", shape=ellipse, color=orange];\n  n0 -> n1;": func(b *strings.Builder) error { return top.DOT(b) },
	} {
		var b strings.Builder
		if err := format(&b); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%v: no %q in\n%s", err, want, b.String())
		}
	}
}

// A DPU has representors of the host that it sits in: they are no interfaces of the PF's
// own, and no function's here.
func TestRepresentorsOfAnotherHostAreNotThePFs(t *testing.T) {
	pf := read(t, "mlx5-switchdev").Devices[0]
	if diff := cmp.Diff([]string{"p0"}, pf.Interfaces); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"pf0hpf", "pf0vf0", "pf0vf1", "pf0vf2", "pf0vf3"}, pf.Represents); diff != "" {
		t.Error(diff)
	}
}
