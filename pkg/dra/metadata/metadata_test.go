package metadata_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	metadataapi "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func TestMain(m *testing.M) { dratest.Main(m) }

var vf = view.Device{Type: "pci", Device: "0000:03:00.2", RDMA: "mlx5_2"}

// vfText is the JSON of vf in the status.
const vfText = `"devinfo-cni.io/device":{"type":"pci","device":"0000:03:00.2","rdma":"mlx5_2"}`

func TestLongErrorIsCutBetweenRunes(t *testing.T) {
	message := metadata.Message("x" + strings.Repeat("é", 1<<15))
	if len(message) != 32<<10-1 || !utf8.ValidString(message) {
		t.Errorf("%d bytes, ending in %q", len(message), message[len(message)-4:])
	}
	difftest.Equal(t, metadata.Message("a\xffb"), "a\ufffdb")
}

func TestDataHasAtMost10KiB(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	lengthy := vf
	lengthy.RDMA = long(10240)
	for name, test := range map[string]struct {
		result, want, warning string
		of                    view.Device
	}{
		"short":        {`{"b":1,"a":12345678901}`, `{"a":12345678901,"b":1}`, "", view.Device{}},
		"at the limit": {`{"a":"` + long(10240-8) + `"}`, `{"a":"` + long(10240-8) + `"}`, "", view.Device{}},
		"one too many": {`{"a":"` + long(10240-7) + `"}`, "", "data is left out: it has 10241 bytes, at most 10240 are allowed", view.Device{}},
		"white space":  {`{"a":` + strings.Repeat(" ", 10240) + `1}`, `{"a":1}`, "", view.Device{}},
		"escapes":      {`{"a":"` + strings.Repeat("<", 2000) + `"}`, "", "data is left out: it has 12008 bytes, at most 10240 are allowed", view.Device{}},
		"a list":       {`[1]`, "", "data is left out: the CNI result is not a JSON object", view.Device{}},
		"null":         {`null`, "", "data is left out: the CNI result is not a JSON object", view.Device{}},
		"none":         {``, "", "data is left out: the CNI result is not a JSON object", view.Device{}},
		"garbage":      {`{"a":1}}`, "", "data is left out: the CNI result is not a JSON object", view.Device{}},

		// If the data is too long, the device is kept and the result is left out.
		"with a result":      {`{"ips":[]}`, `{` + vfText + `,"ips":[]}`, "", vf},
		"with a long result": {`{"a":"` + long(10240) + `"}`, `{` + vfText + `}`, "the CNI result is left out of data: it has 10327 bytes, at most 10240 are allowed", vf},
		"with garbage":       {`[]`, `{` + vfText + `}`, "data is left out: the CNI result is not a JSON object", vf},
		"lengthy itself":     {`{}`, "", "data is left out: it has 10314 bytes, at most 10240 are allowed", lengthy},
		"itself at the limit": {`{"a":1}`, `{"devinfo-cni.io/device":{"rdma":"` + long(10203) + `"}}`,
			"the CNI result is left out of data: it has 10246 bytes, at most 10240 are allowed", view.Device{RDMA: long(10203)}},
	} {
		data, warnings := metadata.Data(json.RawMessage(test.result), test.of)
		got := ""
		if data != nil {
			got = string(data.Raw)
		}
		difftest.Same(t, name, got, test.want)
		difftest.Same(t, name+": warnings", strings.Join(warnings, "; "), test.warning)
	}
}

func TestAttributesComeFromDeviceInfoAndSysfs(t *testing.T) {
	goldentest.Lines(t, "testdata/attributes.txt", func(line string) (all []string) {
		host, text, _ := strings.Cut(line, " ")
		info, err := devinfo.Parse([]byte(text))
		difftest.Must(t, err)
		warn := func(warning string) { all = append(all, warning) }
		got := metadata.Attributes(info, sysfs.New(capturetest.Load(t, host).Sys()), warn)
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if _, id, _ := strings.Cut(name, "/"); len(id) > resourceapi.DeviceMaxIDLength {
				t.Errorf("the API takes no name as long as %s", id)
			}
			value, err := json.Marshal(got[name])
			difftest.Must(t, err)
			all = append(all, name+" "+string(value))
		}
		return all
	})
	sys, said := sysfs.New(fstest.MapFS{
		"bus/pci/devices/0000:01:00.0": {Data: []byte("../../../devices/pci0000:00/0000:01:00.0"), Mode: fs.ModeSymlink}, "devices/pci0000:00/0000:01:00.0/numa_node": {Data: []byte("near")},
	}), ""
	info, err := devinfo.Parse([]byte(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:00.0"}}`))
	difftest.Must(t, err)
	metadata.Attributes(info, sys, func(warning string) { said += warning })
	difftest.Contains(t, said, "numaNode is left out", "numa_node")
}

// A metadata file has a document for each version of the format.
func TestGenerationRisesAboveThatOfFormerText(t *testing.T) {
	text := func(uid string, generations ...int64) (all string) {
		for _, n := range generations {
			all += fmt.Sprintf(`{"apiVersion":"metadata.resource.k8s.io/v1beta1","kind":"DeviceMetadata","metadata":{"generation":%d,"uid":%q},"requests":[{"name":"r<"}]}`+"\n", n, uid)
		}
		return all
	}
	for name, test := range map[string]struct{ former, now, want string }{
		"prepared again":    {text("u", 7, 7), text("u", 1, 1), text("u", 8, 8)},
		"the same":          {text("u", 7), text("u", 7), text("u", 8)},
		"newer":             {text("u", 7), text("u", 9), text("u", 9)},
		"of another claim":  {text("v", 7), text("u", 1), text("u", 1)},
		"damaged before":    {`{"apiVersion"`, text("u", 1), text("u", 1)},
		"damaged":           {text("u", 7), `{"apiVersion"`, "an error"},
		"damaged in part":   {text("u", 7), text("u", 1) + `{"metadata"`, "an error"},
		"without an object": {text("u", 7), text("u", 1) + `{"metadata":7}`, "an error"},
	} {
		got, err := metadata.NextGeneration([]byte(test.former), []byte(test.now))
		if err != nil {
			got = []byte("an error")
		}
		difftest.Same(t, name, strings.ReplaceAll(string(got), `\u003c`, "<"), test.want)
	}
}

const netns = "/var/run/netns/a"

func TestNetworkDataDescribesPodInterface(t *testing.T) {
	goldentest.Lines(t, "testdata/results.txt", func(result string) []string {
		got, warnings, err := metadata.NetworkData([]byte(result), "net1", netns)
		if err != nil {
			return []string{"an error"}
		}
		text, err := json.Marshal(got)
		difftest.Must(t, err)
		return append(warnings, string(text))
	})
}

func TestAddressesBeyondAPILimitsAreLeftOutWithWarning(t *testing.T) {
	var ips, want []string
	for n := range 20 {
		ips = append(ips, fmt.Sprintf(`{"address":"10.0.0.%d/8"}`, n), fmt.Sprintf(`{"address":"::ffff:10.0.0.%d/104"}`, n))
		want = append(want, fmt.Sprintf("10.0.0.%d/8", n))
	}
	ips = append(ips, `{"address":"::ffff:10.0.0.1/64"}`)
	data := func(mac int, ips []string) (*resourceapi.NetworkDeviceData, []string) {
		got, warnings, err := metadata.NetworkData([]byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"x","mac":"`+
			strings.Repeat("m", mac)+`"}],"ips":[`+strings.Join(ips, ",")+`]}`), "net1", netns)
		difftest.Must(t, err)
		return got, warnings
	}
	_, warnings := data(128, ips[:2*16])
	difftest.Equal(t, warnings, []string(nil))
	got, warnings := data(129, ips)
	difftest.Equal(t, *got, resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: want[:16]})
	difftest.Equal(t, warnings, []string{
		"hardwareAddress is left out: it has 129 bytes, at most 128 are allowed",
		"the address 10.0.0.1 (mask ffffffffffffffff0000000000000000) is left out: it has no canonical form",
		"4 of 20 addresses are left out: at most 16 are allowed",
	})
}

// The API server accepts the result for any output of a plugin.
func FuzzNetworkData(f *testing.F) {
	f.Add(`{"cniVersion":"1.0.0","ips":[{"address":"::ffff:10.0.0.1/120"},{"address":"fe80::1/64"}]}`)
	f.Add(`{"cniVersion":"0.2.0","ip6":{"ip":"FD00::1/64"}}`)
	f.Add(`{"cniVersion":"1.0.0","interfaces":[null,{"name":"net1","sandbox":"x","mac":"0200.0000.0001"}],"ips":[null,{"address":"10.0.0.1/8","interface":1}]}`)
	f.Fuzz(func(t *testing.T, result string) {
		data, _, err := metadata.NetworkData([]byte(result), "net1", netns)
		if err != nil {
			return
		}
		seen := slices.Clone(data.IPs)
		slices.Sort(seen)
		if len(slices.Compact(seen)) != len(data.IPs) || len(data.IPs) > 16 || len(data.HardwareAddress) > 128 {
			t.Errorf("%+v", data)
		}
		for _, ip := range data.IPs {
			if errs := validation.IsValidInterfaceAddress(field.NewPath("ips"), ip); len(errs) > 0 {
				t.Error(errs)
			}
		}
	})
}

func TestMTUIsThatOfPodInterface(t *testing.T) {
	const result = `{"cniVersion": %q, "interfaces": [{"name": "net1", "sandbox": "/ns", "mtu": %s}, {"name": "net1", "mtu": 1300}]}`
	goldentest.Lines(t, "testdata/mtu.txt", func(line string) []string {
		part := strings.SplitN(line, " ", 3)
		list := fmt.Appendf(nil, `{"mtu": 1200, "plugins": [%s]}`, part[2])
		return []string{fmt.Sprint(metadata.MTUOf(fmt.Appendf(nil, result, part[0], part[1]), list, "net1", "/ns"))}
	})
}

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

// Results have an MTU since CNI 1.1.0 only, and KubeVirt's plugin for vhost-user fails without one. The last one is that of
// the captured host's net1.
func TestMTUIsThatOfNetworkElseOfInterface(t *testing.T) {
	for _, c := range []struct{ device, plugin, want string }{
		{"cni", `,"behave":"socket","mtu":9000`, `"mtu":{"int":9000}`}, {"cni", `,"behave":"socket"`, `"mtu":{"int":1500}`},
		{"cni", `,"mtu":9000`, `"mtu":{"int":9000}`}, {dratest.VF3, `,"mtu":9000`, `"mtu":{"int":9000}`}, {"cni", "", `"mtu":{"int":1500}`},
	} {
		got := strings.Join(strings.Fields(metadataOf(t, c.device, "0.4.0", c.plugin)), "")
		difftest.Contains(t, got, c.want)
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
	return difftest.Read(t, dratest.MetadataFile(r.Dir, claim))
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
		told, err := metadata.Decode([]byte(difftest.Read(t, dratest.MetadataFile(r.Dir, claim))))
		difftest.Must(t, err)
		difftest.Equal(t, told.Requests[0].Devices[0].Attributes[numaNode], test.want)
	}
}
