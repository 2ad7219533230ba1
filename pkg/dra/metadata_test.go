package dra_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadataapi "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"devinfo-cni.io/test/difftest"
)

// metadataFile returns the path of the metadata of a claim's request r.
func (r *rig) metadataFile(claim *resourceapi.ResourceClaim) string {
	return filepath.Join(r.dir, "dra-device-metadata", claim.Namespace+"_"+claim.Name, "r", "metadata.json")
}

// readMetadata decodes a claim's metadata with Kubernetes' reader. It returns the zero value if the claim has none.
func (r *rig) readMetadata(claim *resourceapi.ResourceClaim) (read metadataapi.DeviceMetadata) {
	r.t.Helper()
	text, err := os.ReadFile(r.metadataFile(claim))
	if !os.IsNotExist(err) {
		must(r.t, err, devicemetadata.DecodeMetadataFromStream(json.NewDecoder(bytes.NewReader(text)), &read))
	}
	return read
}

// Claims that were prepared with metadata keep it when the flag is off, and those without never need it. Prepare begins
// with generation 1, also when it is repeated, and each update adds 1. The pod has all three claims.
func TestClaimsKeepTheirMetadataWhenFlagChanges(t *testing.T) {
	r := newRig(t)
	r.options.Exec = newPlugins()
	var claims []*resourceapi.ResourceClaim
	for n, ifName := range []string{"net1", "net2", "net3"} {
		claims = append(claims, claimIn("", ifName, []string{"u1", "u2", "u3"}[n], "pod", netRequest{"r", ifName, ""}))
	}
	client := apiServer(nil, claims[0], claims[1], claims[2])
	restart := func(metadata bool) {
		r.noMetadata = !metadata
		r.startKubelet(client, 0)
	}
	prepare := func(n, cdiDevices int) { // the gate, and the metadata if there is any
		t.Helper()
		got := r.prepareByKubelet(claims[n])[string(claims[n].UID)].Devices[0].CdiDeviceIds
		difftest.Same(t, claims[n].Name, len(got), cdiDevices)
	}
	generations := func(when string, want ...int64) {
		t.Helper()
		var got []int64
		for _, c := range claims {
			got = append(got, r.readMetadata(c).Generation)
		}
		difftest.Same(t, when, got, want)
	}
	restart(true)
	prepare(0, 2)
	generations("prepared with metadata", 1, 0, 0)
	first := r.runSandbox("s1", "pod")
	generations("attached", 2, 0, 0)
	restart(false)
	prepare(1, 1)
	r.endPod(first)
	second := r.runSandbox("s2", "pod")
	generations("attached with the flag off", 3, 0, 0)
	prepare(0, 2)
	prepare(1, 1)
	generations("prepared again with the flag off", 2, 0, 0)
	restart(true)
	prepare(2, 2)
	r.endPod(second)
	third := r.runSandbox("s3", "pod")
	generations("attached with the flag on", 3, 0, 2)
	prepare(1, 2)
	generations("prepared again with the flag on", 3, 2, 2)
	r.stop()
	must(t, os.RemoveAll(filepath.Join(r.dir, "cdi"))) // as a reboot does
	restart(false)
	prepare(0, 2)
	prepare(1, 2)
	prepare(2, 2)
	difftest.Equal(t, r.samples()["dra_metadata_files_active driver="+driverName], 3.0)
	r.endPod(third)
	r.unprepareByKubelet(claims...)
	r.expectFiles("dra-device-metadata", 0)
	r.expectFiles("cdi", 0)
}

// The metrics have the names, types and labels of KEP-5304. A counter without failures is 0 and not missing.
func TestMetricsOfMetadata(t *testing.T) {
	r, claim := newRig(t), claimIn("", "net", "u1", "pod", netRequest{"r", "net1", ""})
	r.options.Exec = newPlugins()
	r.startKubelet(apiServer(nil, claim), 0)
	samples := func() map[string]float64 {
		all := map[string]float64{}
		for name, value := range r.samples() {
			if short, ok := strings.CutPrefix(name, "dra_metadata_"); ok {
				all[strings.Replace(short, " driver="+driverName, "", 1)] = value
			}
		}
		return all
	}
	want := map[string]float64{"feature_enabled": 1, "files_active": 0, "writes_total": 0, "write_duration_seconds": 0}
	for _, kind := range []string{"no_space", "permission", "missing", "other"} {
		want["write_errors_total error_type="+kind], want["update_errors_total error_type="+kind] = 0, 0
	}
	difftest.Same(t, "at start", samples(), want)
	families, err := r.registry.Gather()
	must(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint() // the checks of promtool
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	r.prepareByKubelet(claim)
	must(t, r.runPod(r.sandbox("s1", "pod")))
	want["files_active"], want["writes_total"], want["write_duration_seconds"] = 1, 2, 2
	difftest.Same(t, "after an ADD", samples(), want)
	must(t, os.RemoveAll(filepath.Join(r.dir, "dra-device-metadata")))
	difftest.Contains(t, r.agent.RewriteMetadata("u1").Error(), "not found in prepared claim")
	want["update_errors_total error_type=other"] = 1
	difftest.Same(t, "without the file", samples(), want)
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

// A list begins with the node of the device. A device that a claim holds follows the option too, and so does its
// metadata. Rules always compare a number.
func TestNUMANodeIsListIfSelected(t *testing.T) {
	const name, numaNode = "pci-0000-41-10-0", deviceattribute.StandardDeviceAttributeNUMANode
	r, claim := newRig(t), ownClaim("u1", name, `"device":[],`+network(`{"type":"sriov"}`))
	n := newNode(t, "igb-sriov")
	n.text = append(n.text, "-- sys/devices/system/node/node1/distance --\n20 10 12 12 32\n"...)
	n.rules = "devices: [{sharing: exclusive, pciAddresses: ['0000:41:10.0'], select: \"device.attributes['resource.kubernetes.io'].numaNode == 1\"}]"
	for _, test := range []struct {
		form deviceattribute.AttributeForm
		want resourceapi.DeviceAttribute
	}{
		{deviceattribute.ListAttribute, resourceapi.DeviceAttribute{IntValues: []int64{1, 2, 3}}},
		{deviceattribute.ScalarAttribute, resourceapi.DeviceAttribute{IntValue: new(int64(1))}},
		{deviceattribute.ListAttribute, resourceapi.DeviceAttribute{IntValues: []int64{1, 2, 3}}},
	} {
		r.options.Devices.NUMANode = test.form
		client := apiServer(nil, claim)
		r.startOffering(client, n, newPlugins())
		difftest.Equal(t, waitDevices(t, client, "cni", name)[name].Attributes[numaNode], test.want)
		r.prepareByKubelet(claim)
		difftest.Equal(t, r.readMetadata(claim).Requests[0].Devices[0].Attributes[numaNode], test.want)
	}
}
