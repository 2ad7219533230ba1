package metadata_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadataapi "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

func TestMain(m *testing.M) { dratest.Main(m) }

// test/kubevirt reads these files with KubeVirt's own code. For a VF it attaches the function that the metadata
// names. Its plugin for vhost-user needs path and MTU, both without a prefix.
func TestMetadataEqualsTestdataOfKubeVirt(t *testing.T) {
	for file, c := range map[string]struct{ device, plugin string }{"vf": {dratest.VF3, ""}, "vhost-user": {"cni", `,"behave":"socket"`}} {
		t.Run(file, func(t *testing.T) {
			got := metadataOf(t, c.device, "1.1.0", c.plugin)
			difftest.Equal(t, got, difftest.Read(t, "../../../test/kubevirt/testdata/"+file+".json"))
			var read, invalid = new(metadataapi.DeviceMetadata), error(nil)
			difftest.Must(t, devicemetadata.DecodeMetadataFromStream(json.NewDecoder(strings.NewReader(got)), read, devicemetadata.DecodeMetadataWithValidationResult(&invalid)))
			if len(read.Requests) != 1 || invalid != nil {
				t.Errorf("Kubernetes' reader takes it for %+v: %v", read, invalid)
			}
		})
	}
}

// A metadata file has the same content in each version of the format.
func TestKubernetesReadsRDMADevicesAsList(t *testing.T) {
	r, claim := dratest.NewRig(t), dratest.DeviceClaim("u1", "pci-0000-17-00-1", "")
	r.UseJournal("mlx5-infiniband", dratest.InfinibandRules)
	r.StartKubelet(dratest.APIServer(nil, claim), 0)
	r.PrepareByKubelet(claim)
	text := difftest.Read(t, r.MetadataFile(claim))
	var versions []string
	for file := json.NewDecoder(strings.NewReader(text)); file.More(); {
		var version json.RawMessage
		difftest.Must(t, file.Decode(&version))
		var read, invalid = new(metadataapi.DeviceMetadata), error(nil)
		var kind schema.GroupVersionKind
		difftest.Must(t, devicemetadata.DecodeMetadataFromStream(json.NewDecoder(bytes.NewReader(version)), read,
			devicemetadata.DecodeMetadataWithValidationResult(&invalid), devicemetadata.DecodeMetadataStoreGVKResult(&kind)))
		difftest.Must(t, invalid)
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
		difftest.Contains(t, got, `"mtu":{"int":`+want+`}`)
	}
}

// metadataOf attaches a claim of the device and returns its metadata file. plugin is added to the plugin's
// configuration.
func metadataOf(t *testing.T, device, cniVersion, plugin string) string {
	t.Helper()
	r := dratest.NewRig(t)
	r.Offer("mlx5-switchdev", "")
	config := fmt.Sprintf(`"config":{"cniVersion":%q,"name":"net","plugins":[{"type":"fake","dir":%q%s,"capabilities":{"CNIDeviceInfoFile":true}}]}`, cniVersion, r.Dir, plugin)
	if device != "cni" {
		config = `"device":[],` + config
	}
	claim := dratest.DeviceClaim("u1", device, config)
	r.StartKubelet(dratest.APIServer(nil, claim), 0)
	r.PrepareByKubelet(claim)
	difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
	return difftest.Read(t, r.MetadataFile(claim))
}

// A list begins with the node of the device. A device that a claim holds follows the option too, and so does its
// metadata. Rules always compare a number.
func TestNUMANodeIsListIfSelected(t *testing.T) {
	const name, numaNode = "pci-0000-41-10-0", deviceattribute.StandardDeviceAttributeNUMANode
	r, claim := dratest.NewRig(t), dratest.DeviceClaim("u1", name, `"device":[],`+dratest.Network(`{"type":"sriov"}`))
	n := dratest.NewNode(t, "igb-sriov")
	n.Text = append(n.Text, "-- sys/devices/system/node/node1/distance --\n20 10 12 12 32\n"...)
	n.Rules = "devices: [{sharing: exclusive, pciAddresses: ['0000:41:10.0'], select: \"device.attributes['resource.kubernetes.io'].numaNode == 1\"}]"
	for _, test := range []struct {
		form deviceattribute.AttributeForm
		want resourceapi.DeviceAttribute
	}{
		{deviceattribute.ListAttribute, resourceapi.DeviceAttribute{IntValues: []int64{1, 2, 3}}},
		{deviceattribute.ScalarAttribute, resourceapi.DeviceAttribute{IntValue: new(int64(1))}},
		{deviceattribute.ListAttribute, resourceapi.DeviceAttribute{IntValues: []int64{1, 2, 3}}},
	} {
		r.Options.Devices.NUMANode = test.form
		client := dratest.APIServer(nil, claim)
		r.StartOffering(client, n)
		difftest.Equal(t, dratest.WaitDevices(t, client, "cni", name)[name].Attributes[numaNode], test.want)
		r.PrepareByKubelet(claim)
		difftest.Equal(t, r.ReadMetadata(claim).Requests[0].Devices[0].Attributes[numaNode], test.want)
	}
}
