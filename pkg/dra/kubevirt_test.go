package dra_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metadataapi "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/metadata"
)

// KubeVirt's own code reads these files, in test/kubevirt: of a VF it attaches the function
// that the metadata names; its plugin for vhost-user wants path and MTU, both unqualified.
func TestKubeVirtIsGivenWhatItIsTestedWith(t *testing.T) {
	for file, c := range map[string]struct{ device, behave string }{"vf": {vf3, ""}, "vhost-user": {"cni", "socket"}} {
		t.Run(file, func(t *testing.T) {
			want, err := os.ReadFile("../../test/kubevirt/testdata/" + file + ".json")
			must(t, err)
			got := metadataOf(t, c.device, c.behave)
			difftest.Equal(t, got, string(want))
			var read, invalid = new(metadataapi.DeviceMetadata), error(nil)
			must(t, devicemetadata.DecodeMetadataFromStream(json.NewDecoder(strings.NewReader(got)), read, devicemetadata.DecodeMetadataWithValidationResult(&invalid)))
			if len(read.Requests) != 1 || invalid != nil {
				t.Errorf("Kubernetes' reader takes it for %+v: %v", read, invalid)
			}
		})
	}
}

// metadataOf is the metadata file of a claim of the device once its network runs, of which
// the plugin behaves like that.
func metadataOf(t *testing.T, device, behave string) string {
	t.Helper()
	r, n := newRig(t), newNode(t, "mlx5-switchdev")
	config := fmt.Sprintf(`"config":{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"fake","dir":%q,"behave":%q,"capabilities":{"CNIDeviceInfoFile":true}}]}`, r.dir, behave)
	if device != "cni" {
		config = `"device":[],` + config
	}
	claim := ownClaim("u1", device, config)
	_, agent, dir := kubeletOf(t, server(nil, claim), 0, func(o *dra.Options) {
		log := o.Log
		*o = r.options
		o.Log, o.Inventory, o.Finder = log, n.inventory(), n.finder()
		o.Attributes = metadata.Describer{Sys: o.Finder.Sys}.Attributes
	})
	r.agent = agent
	byKubelet(t, dir, claim)
	must(t, r.runPod(r.sandbox("s1", "pod")))
	data, err := os.ReadFile(filepath.Join(dir, "dra-device-metadata", "ns_"+claim.Name, "r", "metadata.json"))
	must(t, err)
	return string(data)
}
