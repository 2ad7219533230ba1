package peers_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	nadutils "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/utils"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

// FuzzReaders checks that Multus and KubeVirt, which use these types, read the same device as devinfo: from any text
// that devinfo accepts, and from the text that devinfo writes for it.
func FuzzReaders(f *testing.F) {
	for _, text := range []string{
		`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.2", "vhost-net": "/dev/vhost-net", "rdma-device": "mlx5_2",
			"pf-pci-address": "0000:03:00.0", "representor-device": "eth4"}}`,
		`{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost", "path": "/dev/vhost-vdpa-0",
			"pci-address": "0000:65:00.3", "pf-pci-address": "0000:65:00.0", "representor-device": "eth4"}}`,
		`{"type": "memif", "version": "1.1.0", "memif": {"role": "master", "path": "/run/m.sock", "mode": "ethernet"}}`,
		`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.2", "PCI-Address": "0000:3b:00.7"}}`,
		`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.2", "pci-addre\u017fs": "0000:3b:00.7"}}`,
		`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.2"}, "pci": {"rdma-device": "a"}}`,
		`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.2", "pci-address": null}}`,
		`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.2"}, "vdpa": {"driver": 5}}`,
		`{"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "mode": "punt", "path": "/\ud800"}, "Type": "pci"}`,
		`{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "a", "driver": "vhost", "path": "/dev/x"}, "Memif": {}}`,
		`{"type": "vhost-user", "version": "1.0.0", "vhost-user": {"mode": "client", "path": "/a", "x": [{"Path": 1}]}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		info, err := devinfo.Parse(text)
		if err != nil {
			return
		}
		if info.Validate().Err() == nil {
			sameToAll(t, info, text)
		}
		if merged := devinfo.Merge(info, nil, nil); merged.Validate().Err() == nil {
			sameToAll(t, merged, merged.Encode())
		}
	})
}

func sameToAll(t *testing.T, info *devinfo.Info, text []byte) {
	t.Helper()
	var theirs nadv1.DeviceInfo
	if err := json.Unmarshal(text, &theirs); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if theirs.Memif != nil && theirs.Memif.Mode == nadv1.MemitDeviceModePunt {
		theirs.Memif.Mode = "inject-punt" // Parse sets this default
	}
	difftest.Same(t, string(text), theirs, lookalike(info))
}

// lookalike converts device information to their types.
func lookalike(info *devinfo.Info) nadv1.DeviceInfo {
	is := nadv1.DeviceInfo{Type: string(info.Type), Version: info.Version}
	if p := info.PCI; p != nil {
		is.Pci = &nadv1.PciDevice{PciAddress: p.Address, Vhostnet: p.VhostNet, RdmaDevice: p.RDMADevice, PfPciAddress: p.PFAddress, RepresentorDevice: p.Representor}
	}
	if v := info.VDPA; v != nil {
		is.Vdpa = &nadv1.VdpaDevice{ParentDevice: v.ParentDevice, Driver: v.Driver, Path: v.Path, PciAddress: v.Address, PfPciAddress: v.PFAddress, RepresentorDevice: v.Representor}
	}
	if v := info.VhostUser; v != nil {
		is.VhostUser = &nadv1.VhostDevice{Mode: v.Mode, Path: v.Path}
	}
	if m := info.Memif; m != nil {
		is.Memif = &nadv1.MemifDevice{Role: m.Role, Path: m.Path, Mode: m.Mode}
	}
	return is
}

// A test of pkg/dra/devices compares cni-dra-driver's file with testdata. The paths are constants in Multus' library.
func TestMultusCopiesFileOfDriver(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		const resource, id = "example.com/vf", "0000:03:00.5"
		network := filepath.Join(devinfo.CNIDir, "net-abc_net1")
		if err := nadutils.CopyDeviceInfoForCNIFromDP(network, resource, id); err == nil {
			t.Error("copied a file that does not exist")
		}
		info, err := devinfo.Parse([]byte(difftest.Read(t, "testdata/device-of-claim.json")))
		must(t, err, devinfo.WriteFile(filepath.Join(devinfo.DevicePluginDir, devinfo.DevicePluginFile(resource, id)), info))
		must(t, nadutils.CopyDeviceInfoForCNIFromDP(network, resource, id))
		got, err := nadutils.LoadDeviceInfoFromCNI(network)
		must(t, err)
		difftest.Equal(t, *got, lookalike(info))
	})
}

// Multus does not export the function that returns the path of a device plugin's file. The error for a missing file
// contains the path.
func TestMultusUsesPathsOfOurLibrary(t *testing.T) {
	const resource = "devinfo-cni.invalid/test/peers" // no node has a file of this resource
	for _, id := range []string{"0000:03:00.2", "mlx5_core.sf.4", "a/b"} {
		_, err := nadutils.LoadDeviceInfoFromDP(resource, id)
		theirs := new(fs.PathError)
		if ours := filepath.Join(devinfo.DevicePluginDir, devinfo.DevicePluginFile(resource, id)); !errors.As(err, &theirs) || theirs.Path != ours {
			t.Errorf("Multus reads %q (%v), ours is %s", theirs.Path, err, ours)
		}
	}
	difftest.Equal(t, nadutils.GetCNIDeviceInfoPath("net1"), filepath.Join(devinfo.CNIDir, "net1"))
}

var must = difftest.Must

// The stories contain results and the files that belong to them.
func TestMultusBuildsNetworkStatusFromOurResults(t *testing.T) {
	stories, err := filepath.Glob("../../testdata/stories/*.txtar")
	must(t, err)
	told := map[string]int{}
	for _, path := range stories {
		archive, err := txtar.ParseFile(path)
		must(t, err)
		var result types.Result // result of the step
		for _, f := range archive.Files {
			if unicode.IsUpper(rune(f.Name[0])) {
				result = nil
			}
			if f.Name == "stdout" {
				result, _ = create.CreateFromBytes(f.Data) // it may be an error
			}
			theirs := new(nadv1.DeviceInfo)
			if result == nil || !strings.HasPrefix(f.Name, "/run/infos/") || json.Unmarshal(f.Data, theirs) != nil {
				continue
			}
			told[theirs.Type]++
			statuses, err := nadutils.CreateNetworkStatuses(result, "default/net", false, theirs)
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			asTheResult(t, path, result, statuses, theirs)
		}
	}
	for _, kind := range []string{"pci", "vdpa", "vhost-user", "memif"} {
		if told[kind] == 0 {
			t.Errorf("no story prints a result with a %s device", kind)
		}
	}
}

// asTheResult checks that network-status has an entry for each interface in the pod.
func asTheResult(t *testing.T, story string, result types.Result, statuses []*nadv1.NetworkStatus, want *nadv1.DeviceInfo) {
	t.Helper()
	r, err := types100.NewResultFromResult(result)
	must(t, err)
	var names, inPod []string
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			inPod = append(inPod, i.Name)
		}
	}
	for _, s := range statuses {
		names = append(names, s.Interface)
		if s.DeviceInfo != want {
			t.Errorf("%s: %s has the device %+v", story, s.Interface, s.DeviceInfo)
		}
	}
	difftest.Same(t, story+": network-status", names, inPod)
}
