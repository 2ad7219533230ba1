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

	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// Claims that were prepared with metadata keep it when the flag is off, and those without never need it. Prepare begins
// with generation 1, also when it is repeated, and each update adds 1. The pod has all three claims.
func TestClaimsKeepTheirMetadataWhenFlagChanges(t *testing.T) {
	r := dratest.NewRig(t)
	r.UsePlugins()
	var claims []*resourceapi.ResourceClaim
	for n, ifName := range []string{"net1", "net2", "net3"} {
		claims = append(claims, dratest.ClaimIn("", ifName, []string{"u1", "u2", "u3"}[n], "pod", dratest.Net("r", ifName, "")))
	}
	client := dratest.APIServer(nil, claims[0], claims[1], claims[2])
	restart := func(metadata bool) {
		r.NoMetadata = !metadata
		r.StartKubelet(client, 0)
	}
	prepare := func(n, cdiDevices int) { // the gate, and the metadata if there is any
		t.Helper()
		got := r.PrepareByKubelet(claims[n])[string(claims[n].UID)].Devices[0].CdiDeviceIds
		difftest.Same(t, claims[n].Name, len(got), cdiDevices)
	}
	generations := func(when string, want ...int64) {
		t.Helper()
		var got []int64
		for _, c := range claims {
			got = append(got, r.ReadMetadata(c).Generation)
		}
		difftest.Same(t, when, got, want)
	}
	restart(true)
	prepare(0, 2)
	generations("prepared with metadata", 1, 0, 0)
	first := r.RunSandbox("s1", "pod")
	generations("attached", 2, 0, 0)
	restart(false)
	prepare(1, 1)
	r.EndPod(first)
	second := r.RunSandbox("s2", "pod")
	generations("attached with the flag off", 3, 0, 0)
	prepare(0, 2)
	prepare(1, 1)
	generations("prepared again with the flag off", 2, 0, 0)
	restart(true)
	prepare(2, 2)
	r.EndPod(second)
	third := r.RunSandbox("s3", "pod")
	generations("attached with the flag on", 3, 0, 2)
	prepare(1, 2)
	generations("prepared again with the flag on", 3, 2, 2)
	r.Stop()
	difftest.Must(t, os.RemoveAll(filepath.Join(r.Dir, "cdi"))) // as a reboot does
	restart(false)
	prepare(0, 2)
	prepare(1, 2)
	prepare(2, 2)
	difftest.Equal(t, r.Samples()["dra_metadata_files_active driver="+dratest.Driver], 3.0)
	r.EndPod(third)
	r.UnprepareByKubelet(claims...)
	r.ExpectFiles("dra-device-metadata", 0)
	r.ExpectFiles("cdi", 0)
}

// The metrics have the names, types and labels of KEP-5304. A counter without failures is 0 and not missing.
func TestMetricsOfMetadata(t *testing.T) {
	r, claim := dratest.NewRig(t), dratest.ClaimIn("", "net", "u1", "pod", dratest.Net("r", "net1", ""))
	r.UsePlugins()
	r.StartKubelet(dratest.APIServer(nil, claim), 0)
	samples := func() map[string]float64 {
		all := map[string]float64{}
		for name, value := range r.Samples() {
			if short, ok := strings.CutPrefix(name, "dra_metadata_"); ok {
				all[strings.Replace(short, " driver="+dratest.Driver, "", 1)] = value
			}
		}
		return all
	}
	want := map[string]float64{"feature_enabled": 1, "files_active": 0, "writes_total": 0, "write_duration_seconds": 0}
	for _, kind := range []string{"no_space", "permission", "missing", "other"} {
		want["write_errors_total error_type="+kind], want["update_errors_total error_type="+kind] = 0, 0
	}
	difftest.Same(t, "at start", samples(), want)
	families, err := r.Registry.Gather()
	difftest.Must(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint() // the checks of promtool
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	r.PrepareByKubelet(claim)
	difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
	want["files_active"], want["writes_total"], want["write_duration_seconds"] = 1, 2, 2
	difftest.Same(t, "after an ADD", samples(), want)
	difftest.Must(t, os.RemoveAll(filepath.Join(r.Dir, "dra-device-metadata")))
	difftest.Contains(t, r.Agent.RewriteMetadata("u1").Error(), "not found in prepared claim")
	want["update_errors_total error_type=other"] = 1
	difftest.Same(t, "without the file", samples(), want)
}

// test/kubevirt reads these files with KubeVirt's own code. For a VF it attaches the function that the metadata
// names. Its plugin for vhost-user needs path and MTU, both without a prefix.
func TestMetadataEqualsTestdataOfKubeVirt(t *testing.T) {
	for file, c := range map[string]struct{ device, plugin string }{"vf": {dratest.VF3, ""}, "vhost-user": {"cni", `,"behave":"socket"`}} {
		t.Run(file, func(t *testing.T) {
			got := metadataOf(t, c.device, "1.1.0", c.plugin)
			difftest.Equal(t, got, difftest.Read(t, "../../test/kubevirt/testdata/"+file+".json"))
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
