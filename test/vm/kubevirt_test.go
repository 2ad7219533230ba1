//go:build vm

package vm_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// virtLauncher is the annotation of the pod that virt-controller makes for the example's VM:
// test/kubevirt holds it to KubeVirt's code.
//
//go:embed testdata/virt-launcher.json
var virtLauncher string

// KubeVirt is not here: a VF of the real igb on vfio-pci is attached to the pod that
// virt-controller would make, with sriov as a stand-in, which sets the VLAN by the real PF.
// Multus' network-status and the agent's file have what KubeVirt reads, which its own code
// does in test/kubevirt.
func TestExampleKubeVirt(t *testing.T) {
	needs(t, "igb")
	const vf = "0000:01:10.6"
	var networks []struct{ Name, Interface string }
	if err := json.Unmarshal([]byte(virtLauncher), &networks); err != nil || len(networks) != 1 {
		t.Fatal(networks, err)
	}
	ifName := networks[0].Interface
	_, resource := (&cluster{t: t, networks: map[string][]byte{}}).example("kubevirt")
	r := example{
		name: "kubevirt", network: networks[0].Name, ifName: ifName,
		deviceID: vf, pool: poolPCI(vf), settings: `{"injectNodes": true, "cdiDevices": ["0000:01:00.0"]}`,
		pod: func(*testing.T, string) *corev1.Pod {
			return &corev1.Pod{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
				ObjectMeta: metav1.ObjectMeta{Name: "virt-launcher-sriov", Annotations: map[string]string{networksAnnotation: virtLauncher}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "compute", Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{corev1.ResourceName(resource): apiresource.MustParse("1")},
				}}}},
			}
		},
		info: pciInfo(vf, "0000:01:00.0"), nodes: []string{"/dev/vfio/vfio", group(t, vf)},
		firstDel: "failed to get netlink device with name " + ifName + ": Link not found",
	}.begin(t)
	if vlan := stateOf(t, vf).ByPF.VLAN; vlan != 100 {
		t.Errorf("the VF's VLAN is %d", vlan)
	}
	same(t, "network-info.json", sorted(t, read(t, filepath.Join(r.adjustment.Mounts[0].Source, "network-info.json"))),
		sorted(t, fmt.Sprintf(`{"interfaces": [{"network": %q, "deviceInfo": %s, "interface": %q}]}`, r.example.network, r.example.info, ifName)))
	r.end()
	if vlan := stateOf(t, vf).ByPF.VLAN; vlan != 0 {
		t.Errorf("the VF's VLAN is still %d", vlan)
	}
	nothingBut(t, sriovDir, "pci/"+vf)
}
