package dra_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	metadataapi "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"devinfo-cni.io/test/difftest"
)

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
	text := difftest.Read(t, r.metadataFile(claim))
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
		difftest.Contains(t, got, `"mtu":{"int":`+want+`}`)
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
	return difftest.Read(t, r.metadataFile(claim))
}
