package dra_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	metadataapi "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"devinfo-cni.io/test/difftest"
)

// readAsMultus does what Multus' pkg/draclient does (main branch of 2026, not released). For each claim in the
// pod's status, and each allocated device, it reads deviceID and resourceName from the slice with that driver,
// pool and node. It skips a device that lacks either.
func readAsMultus(t *testing.T, client *fake.Clientset, p *corev1.Pod) (devices map[string][]string) {
	t.Helper()
	devices = map[string][]string{}
	var names []string
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.ResourceClaimName != nil {
			names = append(names, *s.ResourceClaimName)
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	for _, name := range names {
		claim, err := client.ResourceV1().ResourceClaims(p.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		for _, result := range claim.Status.Allocation.Devices.Results {
			d := publishedDevice(t, client, p.Spec.NodeName, result)
			id, resource := d.Attributes["k8s.cni.cncf.io/deviceID"].StringValue, d.Attributes["k8s.cni.cncf.io/resourceName"].StringValue
			if id != nil && resource != nil {
				devices[*resource] = append(devices[*resource], *id)
			}
		}
	}
	return devices
}

// publishedDevice returns an allocated device from its ResourceSlice.
func publishedDevice(t *testing.T, client *fake.Clientset, node string, result resourceapi.DeviceRequestAllocationResult) (found resourceapi.Device) {
	t.Helper()
	list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, s := range list.Items {
		if s.Spec.Driver != result.Driver || s.Spec.Pool.Name != result.Pool || s.Spec.NodeName == nil || *s.Spec.NodeName != node {
			continue
		}
		for _, d := range s.Spec.Devices {
			if d.Name == result.Device {
				return d
			}
		}
	}
	t.Errorf("%s is in no slice", result.Device)
	return found
}

// devicesForNetworks returns the device that Multus passes to each network: the next one with the network's
// resourceName.
func devicesForNetworks(devices map[string][]string, networks ...string) (ids []string, err error) {
	next := map[string]int{}
	for _, resource := range networks {
		n := next[resource]
		if n >= len(devices[resource]) {
			return nil, errors.New("no device is left for " + resource)
		}
		next[resource] = n + 1
		ids = append(ids, devices[resource][n])
	}
	return ids, nil
}

func podOf(claims ...*resourceapi.ResourceClaim) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid-pod"}, Spec: corev1.PodSpec{NodeName: "node1"}}
	for _, c := range claims {
		p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: "entry-" + c.Name, ResourceClaimName: &c.Name})
	}
	return p
}

// Multus needs only the slices and the allocation: each network gets a device with its resourceName, by
// position, even while pods have the devices.
func TestMultusFindsDevicesOfItsNetworks(t *testing.T) {
	t.Parallel()
	bare := func(name, device string) request { return request{name: name, device: device} }
	first, second := claimFor("u1", bare("a", vf3), bare("b", vf0)), claimFor("u2", bare("r", vf2))
	own := claimFor("u3", requestFor("r", sf4, "net1", `host-device","capabilities":{"deviceID":true},"x":"`, 0))
	extended := asExtendedResource(second.DeepCopy())
	extended.Name, extended.UID = "extended", "u4"
	client := apiServer(nil, first, second, own, extended)
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	n.rules = strings.ReplaceAll(ownRules, "vfIndex == 3", "vfIndex in [0, 3]")
	n.rules = strings.Replace(n.rules, "\n- select: device.attributes[\"devinfo-cni.io\"].kind in",
		"\n- pciAddresses: ['0000:03:00.4']\n  sharing: exclusive\n  resourceName: example.com/other\n- select: device.attributes[\"devinfo-cni.io\"].kind in", 1)
	r.startOffering(client, n, p)
	waitDevices(t, client, sf4, sf7, "cni", pf, vf0, vf2, vf3)
	r.prepareByKubelet(first, second, own)
	must(t, r.runPod(r.sandbox("s1", "pod"))) // attaches the SF; Multus attaches the other devices
	n.change(func() { n.remove("enp3s0f0v2", "enp3s0f0v0") })
	byScheduler := podOf(first)
	byScheduler.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"}
	for name, c := range map[string]struct {
		pod      *corev1.Pod
		networks []string
		want     []string // nil = Multus returns an error
	}{
		"by position":          {podOf(first, second, own), []string{"example.com/vf", "example.com/vf", "example.com/other"}, []string{"0000:03:00.5", "0000:03:00.2", "0000:03:00.4"}},
		"in another order":     {podOf(second, first), []string{"example.com/other", "example.com/vf"}, []string{"0000:03:00.4", "0000:03:00.5"}},
		"an extended resource": {byScheduler, []string{"example.com/other"}, []string{"0000:03:00.4"}},
		"more networks":        {podOf(first), []string{"example.com/vf", "example.com/vf", "example.com/vf"}, nil},
		"one of ours":          {podOf(own), []string{"example.com/vf"}, nil},
	} {
		got, err := devicesForNetworks(readAsMultus(t, client, c.pod), c.networks...)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// test/kubevirt reads these files with KubeVirt's own code. For a VF it attaches the function that the metadata
// names. Its plugin for vhost-user needs path and MTU, both without a prefix.
func TestMetadataEqualsTestdataOfKubeVirt(t *testing.T) {
	for file, c := range map[string]struct{ device, plugin string }{"vf": {vf3, ""}, "vhost-user": {"cni", `,"behave":"socket"`}} {
		t.Run(file, func(t *testing.T) {
			got := metadataOf(t, c.device, "1.1.0", c.plugin)
			difftest.Equal(t, got, difftest.Read(t, "../../test/kubevirt/testdata/"+file+".json"))
			var read, invalid = new(metadataapi.DeviceMetadata), error(nil)
			must(t, devicemetadata.DecodeMetadataFromStream(json.NewDecoder(strings.NewReader(got)), read, devicemetadata.DecodeMetadataWithValidationResult(&invalid)))
			if len(read.Requests) != 1 || invalid != nil {
				t.Errorf("Kubernetes' reader takes it for %+v: %v", read, invalid)
			}
		})
	}
}

// A metadata file has the same content in each version of the format.
func TestKubernetesReadsRDMADevicesAsList(t *testing.T) {
	r, claim := newRig(t), ownClaim("u1", "pci-0000-17-00-1", "")
	r.useJournal("mlx5-infiniband", infinibandRules)
	r.startKubelet(apiServer(nil, claim), 0)
	r.prepareByKubelet(claim)
	text := difftest.Read(t, filepath.Join(r.dir, "dra-device-metadata", "ns_"+claim.Name, "r", "metadata.json"))
	var versions []string
	for file := json.NewDecoder(strings.NewReader(text)); file.More(); {
		var version json.RawMessage
		must(t, file.Decode(&version))
		var read, invalid = new(metadataapi.DeviceMetadata), error(nil)
		var kind schema.GroupVersionKind
		must(t, devicemetadata.DecodeMetadataFromStream(json.NewDecoder(bytes.NewReader(version)), read,
			devicemetadata.DecodeMetadataWithValidationResult(&invalid), devicemetadata.DecodeMetadataStoreGVKResult(&kind)))
		must(t, invalid)
		versions = append(versions, kind.Version)
		attributes := read.Requests[0].Devices[0].Attributes
		difftest.Equal(t, attributes["devinfo-cni.io/rdmaDevices"].StringValues, []string{"mlx5_1"})
		difftest.Equal(t, attributes["devinfo-cni.io/rdmaDevice"].StringValue, new("mlx5_1"))
	}
	difftest.Equal(t, versions, []string{"v1beta1", "v1alpha1"})
}

// Results have an MTU since CNI 1.1.0 only, and KubeVirt's plugin fails without one.
func TestVhostUserSocketHasMTUEvenIfResultHasNone(t *testing.T) {
	for plugin, want := range map[string]string{`,"mtu":9000`: "9000", "": "1500"} {
		got := strings.Join(strings.Fields(metadataOf(t, "cni", "0.4.0", `,"behave":"socket"`+plugin)), "")
		if !strings.Contains(got, `"mtu":{"int":`+want+`}`) {
			t.Errorf("%q: got %s", plugin, got)
		}
	}
}

// metadataOf attaches a claim of the device and returns its metadata file. plugin is added to the plugin's
// configuration.
func metadataOf(t *testing.T, device, cniVersion, plugin string) string {
	t.Helper()
	r := newRig(t)
	r.offer("mlx5-switchdev", "")
	config := fmt.Sprintf(`"config":{"cniVersion":%q,"name":"net","plugins":[{"type":"fake","dir":%q%s,"capabilities":{"CNIDeviceInfoFile":true}}]}`, cniVersion, r.dir, plugin)
	if device != "cni" {
		config = `"device":[],` + config
	}
	claim := ownClaim("u1", device, config)
	r.startKubelet(apiServer(nil, claim), 0)
	r.prepareByKubelet(claim)
	must(t, r.runPod(r.sandbox("s1", "pod")))
	return difftest.Read(t, filepath.Join(r.dir, "dra-device-metadata", "ns_"+claim.Name, "r", "metadata.json"))
}
