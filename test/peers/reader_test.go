package peers_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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
	if theirs, ours := nadutils.GetCNIDeviceInfoPath("net1"), filepath.Join(devinfo.CNIDir, "net1"); theirs != ours {
		t.Errorf("Multus has %s for a network, ours is %s", theirs, ours)
	}
}

func TestWeReadFilesOfMultus(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "k8s.cni.cncf.io", "devinfo")
	path := filepath.Join(dir, "net-abc_net1")
	theirs := nadv1.DeviceInfo{Type: "pci", Version: "1.0.0", Pci: &nadv1.PciDevice{PciAddress: "0000:03:00.2"}}
	must(t, os.MkdirAll(dir, 0o755))
	must(t, nadutils.SaveDeviceInfoForCNI(path, &theirs))
	got, err := devinfo.ReadFile(path)
	want := &devinfo.Info{Type: devinfo.TypePCI, Version: "1.0.0", PCI: &devinfo.PCI{Address: "0000:03:00.2"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v (%v), want %+v", got, err, want)
	}
}

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
	if !slices.Equal(names, inPod) {
		t.Errorf("%s: network-status has %q, the result %q", story, names, inPod)
	}
}
