//go:build vm

package vm_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// A virtualMachine is what virt-controller needs of one to make its pod.
type virtualMachine struct {
	Metadata struct{ Name string }
	Spec     struct {
		Template struct {
			Spec struct {
				Networks []struct {
					Name   string
					Multus struct{ NetworkName string }
				}
				Domain struct {
					Devices struct {
						Interfaces []struct {
							Name  string
							SRIOV *struct{}
						}
					}
				}
			}
		}
	}
}

// launcher makes the pod of a VM of one network, as virt-controller does: it asks for the
// network's resource, and the interface's name comes of the network's (KubeVirt's
// pkg/network/namescheme).
func (vm virtualMachine) launcher(t *testing.T, resource string) (pod *corev1.Pod, network, ifName string) {
	t.Helper()
	spec := vm.Spec.Template.Spec
	if len(spec.Networks) != 1 || len(spec.Domain.Devices.Interfaces) != 1 ||
		spec.Domain.Devices.Interfaces[0].Name != spec.Networks[0].Name || spec.Domain.Devices.Interfaces[0].SRIOV == nil {
		t.Fatalf("the VM has not one network with an SR-IOV interface: %+v", spec)
	}
	network = spec.Networks[0].Name
	ifName = fmt.Sprintf("pod%x", sha256.Sum256([]byte(network)))[:14]
	selection, err := json.Marshal([]map[string]string{{"name": spec.Networks[0].Multus.NetworkName, "namespace": "default", "interface": ifName}})
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "virt-launcher-" + vm.Metadata.Name, Annotations: map[string]string{networksAnnotation: string(selection)}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "compute", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceName(resource): apiresource.MustParse("1")},
		}}}},
	}, network, ifName
}

// KubeVirt is not here: a VF of the real igb on vfio-pci is attached to the pod that
// virt-controller would make, with sriov as a stand-in, which sets the VLAN by the real PF.
// What virt-launcher reads is decoded by its rules, from what virt-controller makes of
// network-status and from the agent's file.
func TestExampleKubeVirt(t *testing.T) {
	needs(t, "igb")
	const vf = "0000:01:10.6"
	var vm virtualMachine
	text, resource := (&cluster{t: t, networks: map[string][]byte{}}).example("kubevirt")
	if err := yaml.Unmarshal([]byte(text), &vm); err != nil {
		t.Fatal(err)
	}
	pod, network, ifName := vm.launcher(t, resource)
	r := example{
		name: "kubevirt", network: vm.Spec.Template.Spec.Networks[0].Multus.NetworkName, ifName: ifName,
		deviceID: vf, pool: poolPCI(vf), settings: `{"cdiDevices": ["0000:01:00.0"]}`,
		pod:  func(*testing.T, string) *corev1.Pod { return pod },
		info: pciInfo(vf, "0000:01:00.0"), nodes: []string{"/dev/vfio/vfio", group(t, vf)},
		firstDel: "failed to get netlink device with name " + ifName + ": Link not found",
	}.begin(t)
	if vlans := vfOf(t, "enp1s0", 3).VLANList; len(vlans) != 1 || vlans[0].VLAN != 100 {
		t.Errorf("the VF's VLAN is %v", vlans)
	}
	downward := networkInfo{Interfaces: []networkInterface{{Network: network, DeviceInfo: r.status.DeviceInfo}}}
	same(t, "the VF by the downward API", downward.vf(t, network), vf)
	var ours networkInfo
	if err := json.Unmarshal([]byte(read(t, filepath.Join(r.adjustment.Mounts[0].Source, "network-info.json"))), &ours); err != nil {
		t.Fatal(err)
	}
	same(t, "the VF by the agent", ours.vf(t, r.example.network), vf)
	same(t, "interface of it", ours.Interfaces[0].Interface, ifName)
	r.end()
	if vlans := vfOf(t, "enp1s0", 3).VLANList; len(vlans) != 1 || vlans[0].VLAN != 0 {
		t.Errorf("the VF's VLAN is still %v", vlans)
	}
	nothingBut(t, sriovDir, "pci/"+vf)
}

// networkInfo is what KubeVirt reads in network-info (its pkg/network/downwardapi); it has
// no interface.
type networkInfo struct {
	Interfaces []networkInterface `json:"interfaces"`
}

type networkInterface struct {
	Network    string          `json:"network"`
	DeviceInfo json.RawMessage `json:"deviceInfo"`
	Interface  string          `json:"interface"`
}

// vf is what virt-launcher takes for the VF of a network.
func (n networkInfo) vf(t *testing.T, network string) string {
	t.Helper()
	if len(n.Interfaces) != 1 || n.Interfaces[0].Network != network {
		t.Fatalf("not the network %s alone: %+v", network, n)
	}
	var info struct {
		PCI struct {
			Address string `json:"pci-address"`
		} `json:"pci"`
	}
	if err := json.Unmarshal(n.Interfaces[0].DeviceInfo, &info); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^[\da-fA-F]{4}:[\da-fA-F]{2}:[\da-fA-F]{2}\.[0-7]$`).MatchString(info.PCI.Address) {
		t.Errorf("virt-launcher does not take %q for a PCI address", info.PCI.Address)
	}
	return info.PCI.Address
}
