package metadata_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/cluster"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/metadata"
)

var (
	share  = types.UID("7d1c3a2f-6f3e-4b8f-9d0a-3c5f3f0e7a11")
	since  = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	vf     = cluster.Device{Type: "pci", Device: "0000:03:00.2", RDMA: "mlx5_2"}
	device = metadata.Device{Driver: "cni.dra.networking.x-k8s.io", Pool: "node-a", Name: "cni", ShareID: &share, Since: since}
)

// vfText is what is shown of vf.
const vfText = `"devinfo-cni.io/device":{"type":"pci","device":"0000:03:00.2","rdma":"mlx5_2"}`

func TestStatusIsAsTheDeviceConfigurationAPISays(t *testing.T) {
	network := &resourceapi.NetworkDeviceData{InterfaceName: "net1"}
	got, warnings := device.Attached(json.RawMessage(` {"cniVersion": "1.0.0", "ips": []} `), network)
	id := string(share)
	want := resourceapi.AllocatedDeviceStatus{
		Driver: "cni.dra.networking.x-k8s.io", Pool: "node-a", Device: "cni", ShareID: &id,
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: "True", Reason: "NetworkInterfaceReady", Message: "CNI-DRA-Driver has configured the device.", LastTransitionTime: since,
		}},
		Data: &runtime.RawExtension{Raw: []byte(`{"cniVersion":"1.0.0","ips":[]}`)}, NetworkData: network,
	}
	difftest.Equal(t, got, want)
	if warnings != nil {
		t.Error(warnings)
	}
	want.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "NetworkInterfaceNotReady", Message: "no such master: eth9", LastTransitionTime: since}}
	want.Data, want.NetworkData = nil, nil
	difftest.Equal(t, device.Failed("no such master: eth9"), want)

	unshared := device
	unshared.ShareID, want.ShareID = nil, nil
	difftest.Equal(t, unshared.Failed("no such master: eth9"), want)
}

// What is shown of the device is there if there is no network, too.
func TestEachStatusSaysWhichDeviceItIs(t *testing.T) {
	d := device
	d.Shown = vf
	if s := d.Bare(); string(s.Data.Raw) != `{`+vfText+`}` || s.Conditions != nil || s.NetworkData != nil {
		t.Errorf("%+v", s)
	}
	if s := d.Failed("no"); string(s.Data.Raw) != `{`+vfText+`}` {
		t.Errorf("%+v", s)
	}
}

func TestALongErrorIsCutBetweenRunes(t *testing.T) {
	message := device.Failed("x" + strings.Repeat("é", 1<<15)).Conditions[0].Message
	if len(message) != 32<<10-1 || !utf8.ValidString(message) {
		t.Errorf("%d bytes, ending in %q", len(message), message[len(message)-4:])
	}
	if got := device.Failed("a\xffb").Conditions[0].Message; got != "a\ufffdb" {
		t.Errorf("%q", got)
	}
}

func TestDataIsAnObjectOfAtMost10KiB(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	lengthy := vf
	lengthy.RDMA = long(10240)
	for name, test := range map[string]struct {
		result, want, warning string
		of                    cluster.Device
	}{
		"short":          {`{"b":1,"a":12345678901}`, `{"a":12345678901,"b":1}`, "", cluster.Device{}},
		"at the limit":   {`{"a":"` + long(10240-8) + `"}`, `{"a":"` + long(10240-8) + `"}`, "", cluster.Device{}},
		"one too many":   {`{"a":"` + long(10240-7) + `"}`, "", "data is left out: it has 10241 bytes, at most 10240 are allowed", cluster.Device{}},
		"white space":    {`{"a":` + strings.Repeat(" ", 10240) + `1}`, `{"a":1}`, "", cluster.Device{}},
		"routes and dns": {`{"a":1,"routes":["` + long(9000) + `"],"dns":{"domain":"` + long(9000) + `"}}`, `{"a":1}`, "routes and dns are left out of data: it has 18041 bytes, at most 10240 are allowed", cluster.Device{}},
		"even then":      {`{"a":"` + long(11000) + `","dns":{}}`, "", "data is left out: it has 11017 bytes, at most 10240 are allowed", cluster.Device{}},
		"escapes":        {`{"a":"` + strings.Repeat("<", 2000) + `"}`, "", "data is left out: it has 12008 bytes, at most 10240 are allowed", cluster.Device{}},
		"a list":         {`[1]`, "", "data is left out: the CNI result is not a JSON object", cluster.Device{}},
		"null":           {`null`, "", "data is left out: the CNI result is not a JSON object", cluster.Device{}},
		"none":           {``, "", "data is left out: the CNI result is not a JSON object", cluster.Device{}},
		"garbage":        {`{"a":1}}`, "", "data is left out: the CNI result is not a JSON object", cluster.Device{}},

		// What is shown of the device goes first.
		"with a result":      {`{"ips":[]}`, `{` + vfText + `,"ips":[]}`, "", vf},
		"with a long result": {`{"a":"` + long(10240) + `"}`, `{` + vfText + `}`, "the CNI result is left out of data: it has 10327 bytes, at most 10240 are allowed", vf},
		"beside routes":      {`{"a":1,"routes":["` + long(10240) + `"]}`, `{"a":1,` + vfText + `}`, "routes and dns are left out of data: it has 10340 bytes, at most 10240 are allowed", vf},
		"with garbage":       {`[]`, `{` + vfText + `}`, "data is left out: the CNI result is not a JSON object", vf},
		"lengthy itself":     {`{}`, "", "data is left out: it has 10314 bytes, at most 10240 are allowed", lengthy},
	} {
		t.Run(name, func(t *testing.T) {
			data, warnings := metadata.Data(json.RawMessage(test.result), test.of)
			got := ""
			if data != nil {
				got = string(data.Raw)
			}
			difftest.Equal(t, got, test.want)
			difftest.Equal(t, strings.Join(warnings, "; "), test.warning)
		})
	}
}
