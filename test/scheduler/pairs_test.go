package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/test/difftest"
)

const gpuPage = "../../docs/recipes/gpu.md"

// classes are DeviceClasses by name.
type classes map[string]*resourceapi.DeviceClass

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) { return c[name], nil }

func (classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

// trainingNode returns a pool of eight GPUs and one of the NICs that the page's rule offers, a pair below each root complex,
// four on each NUMA node. The NICs are copies of a ConnectX PF of a capture. The order of each pool is shuffled.
func trainingNode(t *testing.T, seed uint64) []*resourceapi.ResourceSlice {
	t.Helper()
	var values struct{ DRA struct{ Devices []any } }
	must(t, yaml.Unmarshal([]byte(difftest.Block(t, gpuPage, "yaml", "# values.yaml")), &values))
	rules, err := yaml.Marshal(map[string]any{"devices": values.DRA.Devices})
	must(t, err)
	published := resourceSlices(offered(t, "mlx5-legacy", string(rules)), "node")
	nics, node, driver := published[0], "node", "gpu.nvidia.com"
	gpus := nics.DeepCopy()
	gpus.Name, gpus.Spec.Driver, gpus.Spec.Devices = "gpus", driver, nil
	pf := nics.Spec.Devices[0]
	nics.Spec.Devices = nil
	for n := range int64(8) {
		root, numa := fmt.Sprintf("pci0000:%d0", n), n/4
		place := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"resource.kubernetes.io/pcieRoot": {StringValue: &root}, inventory.NUMANode: {IntValue: &numa}}
		gpus.Spec.Devices = append(gpus.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("gpu-%d", n), Attributes: place})
		nic := *pf.DeepCopy()
		nic.Name = fmt.Sprintf("nic-%d", n)
		for name, attribute := range place {
			nic.Attributes[name] = attribute
		}
		nics.Spec.Devices = append(nics.Spec.Devices, nic)
	}
	shuffle := rand.New(rand.NewPCG(seed, 0))
	for _, s := range []*resourceapi.ResourceSlice{gpus, nics} {
		shuffle.Shuffle(8, func(a, b int) { s.Spec.Devices[a], s.Spec.Devices[b] = s.Spec.Devices[b], s.Spec.Devices[a] })
	}
	if len(published) != 1 || node != *nics.Spec.NodeName {
		t.Fatalf("%d slices", len(published))
	}
	return []*resourceapi.ResourceSlice{gpus, nics}
}

// The allocator gives the claims of the page pairs below one root complex, or with the page's other attribute on one NUMA
// node, whatever the order of the devices. A ninth pair is not to be had.
func TestPairsOfPageAreNearEachOther(t *testing.T) {
	var fabric resourceapi.DeviceClass
	must(t, yaml.UnmarshalStrict([]byte(difftest.Block(t, gpuPage, "yaml", "kind: DeviceClass")), &fabric))
	for _, wrong := range (cniconfig.Policy{Driver: driver}).CheckClass(&fabric.Spec).Wrong {
		t.Error(wrong)
	}
	known := classes{"fabric": &fabric, "gpu.nvidia.com": {Spec: resourceapi.DeviceClassSpec{Selectors: selectors("device.driver == 'gpu.nvidia.com'")}}}
	for name, pairs := range map[string]int{"pair": 1, "eight-pairs": 8} {
		text := ""
		if name == "pair" {
			text = difftest.Block(t, gpuPage, "yaml", "  name: "+name+"\n")
		} else {
			text = difftest.Read(t, "../../deploy/examples/gpu/"+name+".yaml")
		}
		objects := strings.Split(text, "\n---\n")
		if name == "pair" {
			var pod corev1.Pod
			must(t, yaml.UnmarshalStrict([]byte(objects[1]), &pod))
			difftest.Equal(t, *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName, name)
			difftest.Equal(t, pod.Spec.Containers[0].Resources.Claims[0].Name, pod.Spec.ResourceClaims[0].Name)
		}
		for attribute, far := range map[string]int{"resource.kubernetes.io/pcieRoot": 0, "resource.kubernetes.io/numaNode": 3} {
			var template resourceapi.ResourceClaimTemplate
			must(t, yaml.UnmarshalStrict([]byte(strings.ReplaceAll(objects[0], "resource.kubernetes.io/pcieRoot", attribute)), &template))
			for seed := range uint64(10) {
				got := pairsOf(t, trainingNode(t, seed), known, template.Spec.Spec)
				if len(got) != pairs {
					t.Errorf("%s by %s: %v", name, attribute, got)
				}
				for _, p := range got {
					if apart := p[0] - p[1]; apart < -far || apart > far || p[0]/4 != p[1]/4 {
						t.Errorf("%s by %s: GPU %d with NIC %d", name, attribute, p[0], p[1])
					}
				}
			}
			if far > 0 {
				continue // the allocator would try all combinations, for minutes, as the page says
			}
			node := trainingNode(t, 0)
			node[1].Spec.Devices = node[1].Spec.Devices[:pairs-1]
			if got := pairsOf(t, node, known, template.Spec.Spec); got != nil {
				t.Errorf("%s by %s with %d NICs: %v", name, attribute, pairs-1, got)
			}
		}
	}
}

// pairsOf returns the numbers of GPU and NIC of each pair that a claim gets, nil if it cannot be allocated.
func pairsOf(t *testing.T, published []*resourceapi.ResourceSlice, known classes, spec resourceapi.ResourceClaimSpec) (pairs [][2]int) {
	t.Helper()
	for n := range spec.Devices.Requests { // as the API server does
		spec.Devices.Requests[n].Exactly.AllocationMode, spec.Devices.Requests[n].Exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1
	}
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "u"}, Spec: spec}
	results, err := allocatorOf(t, allocated(), known, published, cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}), false).
		Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, []*resourceapi.ResourceClaim{c})
	must(t, err)
	if len(results) == 0 {
		return nil
	}
	by := map[string]int{}
	for _, r := range results[0].Devices.Results {
		var number int
		_, err := fmt.Sscanf(r.Device[4:], "%d", &number)
		must(t, err)
		by[r.Request] = number
	}
	for request, gpu := range by {
		if name, ok := strings.CutPrefix(request, "gpu"); ok {
			nic, there := by["nic"+name]
			if !there {
				t.Fatalf("%s has no NIC: %v", request, by)
			}
			pairs = append(pairs, [2]int{gpu, nic})
		}
	}
	return pairs
}
