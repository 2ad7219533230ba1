// Package kubevirt_test reads our files with KubeVirt's own code. It is a separate module, because KubeVirt 1.9 is
// built with Kubernetes 1.34 and imports 300 packages of both.
package kubevirt_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/dra"
	"kubevirt.io/kubevirt/pkg/dra/metadata"
	"kubevirt.io/kubevirt/pkg/network/downwardapi"
	"kubevirt.io/kubevirt/pkg/network/namescheme"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

// attributes returns the attributes of the device in a metadata file, as KubeVirt decodes them.
func attributes(t *testing.T, file string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	t.Helper()
	var m metadata.DeviceMetadata
	for d := json.NewDecoder(bytes.NewReader(read(t, file))); !metadata.IsSupportedAPIVersion(m.APIVersion); {
		m = metadata.DeviceMetadata{}
		must(t, d.Decode(&m))
	}
	return m.Requests[0].Devices[0].Attributes
}

// A test of pkg/dra/metadata compares the files in testdata with cni-dra-driver's. For the topology of a VM, KubeVirt
// takes the NUMA node and the PCIe root from the same file (kubevirt/kubevirt issue 18817).
func TestVirtLauncherFindsVFOfClaim(t *testing.T) {
	all := attributes(t, "testdata/vf.json")
	if node, root := all["resource.kubernetes.io/numaNode"].IntValue, all["resource.kubernetes.io/pcieRoot"].StringValue; node == nil || *node != 0 || root == nil || *root != "pci0000:00" {
		t.Errorf("NUMA node and PCIe root: %v", all)
	}
	base, claim := t.TempDir(), "claim-u1"
	dir := filepath.Join(base, "resourceclaims", claim, "r")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "cni.dra.networking.x-k8s.io-metadata.json"), read(t, "testdata/vf.json"), 0o644))
	claims := []v1.VirtualMachineInstanceResourceClaim{{Name: "net", ResourceClaimName: &claim}}
	if got, err := dra.GetPCIAddressForClaim(base, claims, "net", "r"); err != nil || got != "0000:03:00.5" {
		t.Errorf("got %q, %v", got, err)
	}
}

// The binding plugin for vhost-user, which is not part of KubeVirt, uses these attributes of the metadata that
// KubeVirt decodes.
func TestKubeVirtDecodesSocketOfClaim(t *testing.T) {
	all := attributes(t, "testdata/vhost-user.json")
	if path, mtu := all["vhost-user-path"].StringValue, all["mtu"].IntValue; path == nil || *path != "/run/s" || mtu == nil || *mtu != 1450 {
		t.Errorf("got %v", all)
	}
}

var (
	vf     = &nadv1.DeviceInfo{Type: "pci", Version: "1.1.0", Pci: &nadv1.PciDevice{PciAddress: "0000:3b:00.3", PfPciAddress: "0000:3b:00.0"}}
	inPod  = []downwardapi.Interface{{Network: "sriov-net", DeviceInfo: vf, Mac: "02:3b:00:00:00:01", Mtu: 1500}, {Network: "macvlan-net", Mac: "4e:3b:00:00:00:08", Mtu: 1500}}
	status = map[string]nadv1.NetworkStatus{"sriov-net": {DeviceInfo: vf, Mac: "02:3b:00:00:00:01", Mtu: 1500}, "macvlan-net": {Mac: "4e:3b:00:00:00:08", Mtu: 1500}}
)

// docs/injection.md contains the agent's file.
func TestAgentFileIsKubeVirtNetworkInfo(t *testing.T) {
	const begin = `{
  "interfaces"`
	_, block, _ := strings.Cut(string(read(t, "../../docs/injection.md")), begin)
	block, _, _ = strings.Cut(block, "```")
	var ours, theirs downwardapi.NetworkInfo
	must(t, json.Unmarshal([]byte(begin+block), &ours))
	if !reflect.DeepEqual(ours.Interfaces, inPod) {
		t.Errorf("got %+v", ours)
	}
	must(t, json.Unmarshal([]byte(downwardapi.CreateNetworkInfoAnnotationValue(status)), &theirs))
	if len(theirs.Interfaces) != 2 || !reflect.DeepEqual(theirs.Interfaces[1], ours.Interfaces[0]) || !reflect.DeepEqual(theirs.Interfaces[0], ours.Interfaces[1]) {
		t.Errorf("KubeVirt makes %+v of the same networks", theirs)
	}
}

// test/vm creates the pod of the example's VM with this interface.
func TestExampleHasInterfaceThatVirtControllerRequests(t *testing.T) {
	_, text, _ := strings.Cut(string(read(t, "../../deploy/examples/kubevirt.yaml")), "\n---\n")
	var vm v1.VirtualMachine
	must(t, yaml.UnmarshalStrict([]byte(text), &vm))
	var want []nadv1.NetworkSelectionElement
	must(t, json.Unmarshal(read(t, "../vm/testdata/virt-launcher.json"), &want))
	networks := vm.Spec.Template.Spec.Networks
	if name := namescheme.CreateHashedNetworkNameScheme(networks)["fast"]; len(want) != 1 || name != want[0].InterfaceRequest || networks[0].Multus.NetworkName != want[0].Name {
		t.Errorf("the interface is %s of %s, want %+v", name, networks[0].Multus.NetworkName, want)
	}
}

// vm returns the VM at the end of an example.
func vm(t *testing.T, name string) (m v1.VirtualMachine) {
	t.Helper()
	documents := strings.Split(string(read(t, "../../deploy/examples/kubevirt/"+name+".yaml")), "\n---\n")
	must(t, yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), &m))
	return m
}

// The repository of the binding plugin registers it as vdpa.
func TestObjectsOfExampleHaveTypesOfKubeVirt(t *testing.T) {
	spec := vm(t, "vdpa").Spec.Template.Spec
	if i := spec.Domain.Devices.Interfaces[0]; i.Name != spec.Networks[0].Name || i.Binding == nil || i.Binding.Name != "vdpa" {
		t.Errorf("the VM has the interface %+v", i)
	}
	for name, network := range map[string]string{"vf-operator-vm": "vm-vf", "vf-claim": "vm-claim"} {
		spec := vm(t, name).Spec.Template.Spec
		if i := spec.Domain.Devices.Interfaces[0]; i.Name != spec.Networks[0].Name || i.SRIOV == nil || spec.Networks[0].Multus.NetworkName != network {
			t.Errorf("%s: the VM has the interface %+v of %+v", name, i, spec.Networks)
		}
	}
}
