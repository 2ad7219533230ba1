package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/test/difftest"
)

const gpuPage, examples = "../../docs/recipes/gpu.md", "../../deploy/examples/gpu/"

// classes are DeviceClasses by name.
type classes map[string]*resourceapi.DeviceClass

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) { return c[name], nil }

func (classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

// rulesIn returns the rules of a values file.
func rulesIn(t *testing.T, text string) (rules []struct{ Attributes map[string]any }, file string) {
	t.Helper()
	var values struct{ DRA struct{ Devices []any } }
	must(t, yaml.Unmarshal([]byte(text), &values))
	encoded, err := yaml.Marshal(map[string]any{"devices": values.DRA.Devices})
	must(t, err)
	var decoded struct {
		Devices []struct{ Attributes map[string]any }
	}
	must(t, yaml.Unmarshal(encoded, &decoded))
	return decoded.Devices, string(encoded)
}

// trainingNode returns a pool of eight GPUs and one of the NICs that the page's rule offers, a pair below each root complex,
// four on each NUMA node. The NICs are copies of a ConnectX PF of a capture, with the rail of the other rules. The order of each pool is shuffled.
func trainingNode(t *testing.T, seed uint64) []*resourceapi.ResourceSlice {
	t.Helper()
	_, rules := rulesIn(t, difftest.Block(t, gpuPage, "yaml", "# values.yaml"))
	rails, file := rulesIn(t, difftest.Read(t, examples+"rails-values.yaml"))
	_, err := inventory.ParseRules([]byte(file))
	must(t, err)
	published := resourceSlices(offered(t, "mlx5-legacy", rules), "node")
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
		rail := int64(rails[n].Attributes["rail"].(float64))
		nic.Attributes["devinfo-cni.io/rail"] = resourceapi.DeviceAttribute{IntValue: &rail}
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

// manifests are the DeviceClasses and the templates of claims in a text, by name.
func manifests(t *testing.T, text string) (known classes, templates map[string]resourceapi.ResourceClaimSpec) {
	t.Helper()
	known, templates = classes{"gpu.nvidia.com": {Spec: resourceapi.DeviceClassSpec{Selectors: selectors("device.driver == 'gpu.nvidia.com'")}}}, map[string]resourceapi.ResourceClaimSpec{}
	var pods []corev1.Pod
	for _, document := range strings.Split(text, "\n---\n") {
		switch {
		case strings.Contains(document, "\nkind: DeviceClass\n"):
			var class resourceapi.DeviceClass
			must(t, yaml.UnmarshalStrict([]byte(document), &class))
			known[class.Name] = &class
			for _, wrong := range (cniconfig.Policy{Driver: driver}).CheckClass(&class.Spec).Wrong {
				t.Error(class.Name, wrong)
			}
		case strings.Contains(document, "\nkind: ResourceClaimTemplate\n"):
			var template resourceapi.ResourceClaimTemplate
			must(t, yaml.UnmarshalStrict([]byte(document), &template))
			templates[template.Name] = template.Spec.Spec
		default:
			var pod corev1.Pod
			must(t, yaml.UnmarshalStrict([]byte(document), &pod))
			pods = append(pods, pod)
		}
	}
	for _, pod := range pods {
		claim := pod.Spec.ResourceClaims[0]
		difftest.Equal(t, pod.Spec.Containers[0].Resources.Claims[0].Name, claim.Name)
		if _, there := templates[*claim.ResourceClaimTemplateName]; !there {
			t.Errorf("pod %s: there is no template %s", pod.Name, *claim.ResourceClaimTemplateName)
		}
	}
	return known, templates
}

// The allocator gives the claims of the page and of the examples pairs below one root complex, or with the page's other
// attribute on one NUMA node, whatever the order of the devices. A ninth pair is not to be had.
func TestPairsOfPageAreNearEachOther(t *testing.T) {
	fabric := difftest.Block(t, gpuPage, "yaml", "kind: DeviceClass")
	eight := difftest.Read(t, examples+"eight-pairs.yaml")
	difftest.Contains(t, eight, fabric)
	for text, pairs := range map[string]map[string]int{
		fabric + "---\n" + difftest.Block(t, gpuPage, "yaml", "  name: pair\n"): {"pair": 1},
		eight:                                   {"eight-pairs": 8},
		difftest.Read(t, examples+"rails.yaml"): {"eight-rails": 8, "one-rail": 1},
	} {
		for attribute, far := range map[string]int{"resource.kubernetes.io/pcieRoot": 0, "resource.kubernetes.io/numaNode": 3} {
			known, templates := manifests(t, strings.ReplaceAll(text, "resource.kubernetes.io/pcieRoot", attribute))
			difftest.Equal(t, len(templates), len(pairs))
			for name, spec := range templates {
				for seed := range uint64(10) {
					got := pairsOf(t, trainingNode(t, seed), known, spec)
					if len(got) != pairs[name] {
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
				node[1].Spec.Devices = node[1].Spec.Devices[:pairs[name]-1]
				if got := pairsOf(t, node, known, spec); got != nil {
					t.Errorf("%s by %s with %d NICs: %v", name, attribute, pairs[name]-1, got)
				}
			}
		}
	}
}

// pairsOf returns the numbers of GPU and NIC of each pair that a claim gets, nil if it cannot be allocated. A NIC of a class
// of rails has the number of its rail.
func pairsOf(t *testing.T, published []*resourceapi.ResourceSlice, known classes, spec resourceapi.ResourceClaimSpec) (pairs [][2]int) {
	t.Helper()
	classOfRequest := map[string]string{}
	for _, request := range spec.Devices.Requests { // defaults as from the API server
		if exactly := request.Exactly; exactly != nil {
			exactly.AllocationMode, exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1
			classOfRequest[request.Name] = exactly.DeviceClassName
		}
		for s := range request.FirstAvailable {
			one := &request.FirstAvailable[s]
			one.AllocationMode, one.Count = resourceapi.DeviceAllocationModeExactCount, 1
			classOfRequest[request.Name+"/"+one.Name] = one.DeviceClassName
		}
	}
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "u"}, Spec: spec}
	results := allocate(t, known, published, "node", c, false)
	if len(results) == 0 {
		return nil
	}
	by := map[string]int{}
	for _, r := range results[0].Devices.Results {
		var number int
		_, err := fmt.Sscanf(r.Device[4:], "%d", &number)
		must(t, err)
		if class := classOfRequest[r.Request]; strings.HasPrefix(class, "rail") && class != fmt.Sprintf("rail%d", number) {
			t.Errorf("request %s, of class %s, has NIC %d", r.Request, class, number)
		}
		request, _, _ := strings.Cut(r.Request, "/")
		by[request] = number
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
