package grant_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/test/difftest"
)

const netns = "/run/netns/pod"

func finder(t *testing.T, host string) *discovery.Finder {
	return checktest.Finder(t, capturetest.Load(t, host))
}

func TestForInterfaceGrantsByInterface(t *testing.T) {
	for what, test := range map[string]struct {
		ifName, address string
		devices         []string
		want            string
	}{
		"its own device": {"net1", "0000:3b:00.3", nil, `
			/dev/infiniband/uverbs3 c 1:3
			/dev/infiniband/uverbs4 c 1:4
			/dev/infiniband/rdma_cm c 1:5`},
		"another device than the file's": {"net1", "0000:3b:00.1", nil, `
			the PCI function 0000:3b:00.1` + notOurs + `"0000:3b:00.1" or "*" to allowedDevices in the node settings`},
		"another device, which is allowed": {"net1", "0000:3b:00.1", []string{"0000:3b:00.1"}, `
			/dev/infiniband/uverbs1 c 1:2
			/dev/infiniband/rdma_cm c 1:5`},
		"a lower interface's": {"net2", "0000:3b:00.0", []string{"*"}, `
			the PCI function 0000:3b:00.0, a PF with VFs: withheld: other interfaces use it too; ` +
			`attach a device that only this pod uses; no setting allows a shared device`},
		"no interface": {"net7", "0000:3b:00.3", nil, `
			the PCI function 0000:3b:00.3` + notOurs + `"0000:3b:00.3" or "0000:3b:00.0" or "*" to allowedDevices in the node settings`},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := on(t, "mlx5-legacy", test.devices...).ForInterface(finder(t, "mlx5-legacy"), netns, test.ifName, function(test.address))
			must(t, err)
			difftest.Equal(t, "\n"+show(got), strings.ReplaceAll(test.want, "\t", ""))
		})
	}
}

// Grants do not include representors, so a slow PF must not delay the start of containers.
func TestForInterfaceDoesNotReadEswitch(t *testing.T) {
	f := finder(t, "mlx5-legacy")
	f.Eswitches = asked{t: t}
	_, err := on(t, "mlx5-legacy").ForInterface(f, netns, "net1", function("0000:3b:00.3"))
	must(t, err)
}

type asked struct {
	hostdev.Eswitches
	t *testing.T
}

func (a asked) Switchdev(pf string) (bool, error) {
	a.t.Errorf("the PF %s was asked", pf)
	return false, nil
}

func TestSubfunctionGetsItsOwnRDMANodes(t *testing.T) {
	g := on(t, "mlx5-switchdev")
	g.Nodes = nodes("infiniband/uverbs0", "infiniband/uverbs4", "infiniband/rdma_cm")
	f := finder(t, "mlx5-switchdev")
	found, err := f.Find(discovery.Target{DeviceIDs: []config.NamedID{{Key: "deviceID", ID: "mlx5_core.sf.4"}}, SubfunctionParent: true})
	must(t, err)
	found.IsInterface = true
	expect(t, "found", g, found.Info, found, "/dev/infiniband/uverbs4 c 1:1", "/dev/infiniband/rdma_cm c 1:2")
	found.SF = "mlx5_core.sf.99"
	expect(t, "gone", g, found.Info, found)
}

func TestForInterfaceNeedsNetworkNamespace(t *testing.T) {
	const host = "igb-sriov" // the capture has no network namespaces of pods
	got, err := on(t, host, "*").ForInterface(finder(t, host), netns, "net1", function("0000:01:10.0"))
	if !errors.Is(err, link.ErrNoNetns) || show(got) != "" {
		t.Errorf("got %s, %v", show(got), err)
	}
}

func TestNodesBelowReadsMountedRoot(t *testing.T) {
	root := t.TempDir()
	must(t, os.Symlink("/", filepath.Join(root, "host")))
	for _, mounted := range []string{"", "/", root + "/host"} {
		got, err := grant.NodesBelow(mounted)("/dev/null")
		must(t, err)
		difftest.Same(t, mounted, got, cdispec.Node{Path: "/dev/null", Type: "c", Major: 1, Minor: 3, Perm: 0o666})
	}
	for mounted, path := range map[string]string{root: "/dev/null", "": "/dev/none"} {
		if _, err := grant.NodesBelow(mounted)(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %s: %v", mounted, path, err)
		}
	}
}
