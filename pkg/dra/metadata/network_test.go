package metadata_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/test/difftest"
)

const netns = "/var/run/netns/a"

func TestNetworkDataDescribesPodInterface(t *testing.T) {
	for name, test := range map[string]struct {
		result string
		want   resourceapi.NetworkDeviceData
	}{
		"the interface in the sandbox": {`{"cniVersion":"1.0.0","interfaces":[
			{"name":"net1","mac":"02:00:00:00:00:01"},{"name":"veth7","mac":"02:00:00:00:00:02"},
			{"name":"net1","mac":"B2:AF:6A:F9:12:3B","sandbox":"/var/run/netns/a"}],
			"ips":[{"address":"10.10.1.2/24","interface":2},{"address":"192.0.2.1/32","interface":0}]}`,
			resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: "b2:af:6a:f9:12:3b", IPs: []string{"10.10.1.2/24"}}},
		"this sandbox first": {`{"cniVersion":"1.1.0","interfaces":[{"name":"net1","mac":"02:00:00:00:00:01","sandbox":"/other"},
			{"name":"net1","mac":"02:00:00:00:00:02","sandbox":"/var/run/netns/a"}]}`,
			resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: "02:00:00:00:00:02"}},
		"another spelling of it": {`{"cniVersion":"0.4.0","interfaces":[{"name":"net1","mac":"02:00:00:00:00:01","sandbox":"/run/netns/a"}],
			"ips":[{"version":"4","address":"10.0.0.1/8","interface":0}]}`,
			resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: "02:00:00:00:00:01", IPs: []string{"10.0.0.1/8"}}},
		"addresses of no interface": {`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8"},{"address":"fd00::1/64"}]}`,
			resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.0.0.1/8", "fd00::1/64"}}},
		"before interfaces": {`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/8"}}`,
			resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.0.0.1/8"}}},
		"before interfaces, empty": {`{"cniVersion":"0.2.0"}`, resourceapi.NetworkDeviceData{InterfaceName: "net1"}},
		"odd notation": {`{"cniVersion":"1.0.0","ips":[{"address":"FD00:0:0::0001/64"},{"address":"::ffff:10.0.0.1/104"},{"address":"10.0.0.1/8"},{"address":"fd00::1/64"}]}`,
			resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"fd00::1/64", "10.0.0.1/8"}}},
		"a hole":             {`{"cniVersion":"1.0.0","interfaces":[null],"ips":[null]}`, resourceapi.NetworkDeviceData{InterfaceName: "net1"}},
		"an unusual address": {`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","mac":"ib","sandbox":"x"}]}`, resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: "ib"}},
	} {
		got, warnings, err := metadata.NetworkData([]byte(test.result), "net1", netns)
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, warnings %q", name, err, warnings)
		}
		difftest.Same(t, name, got, &test.want)
	}
}

func TestAddressesBeyondAPILimitsAreLeftOutWithWarning(t *testing.T) {
	var ips, want []string
	for n := range 20 {
		ips = append(ips, fmt.Sprintf(`{"address":"10.0.0.%d/8"}`, n), fmt.Sprintf(`{"address":"::ffff:10.0.0.%d/104"}`, n))
		want = append(want, fmt.Sprintf("10.0.0.%d/8", n))
	}
	ips = append(ips, `{"address":"::ffff:10.0.0.1/64"}`)
	got, warnings, err := metadata.NetworkData([]byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"x","mac":"`+
		strings.Repeat("m", 129)+`"}],"ips":[`+strings.Join(ips, ",")+`]}`), "net1", netns)
	difftest.Must(t, err)
	difftest.Equal(t, *got, resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: want[:16]})
	difftest.Equal(t, warnings, []string{
		"hardwareAddress is left out: it has 129 bytes, at most 128 are allowed",
		"the address 10.0.0.1 (mask ffffffffffffffff0000000000000000) is left out: it has no canonical form",
		"4 of 20 addresses are left out: at most 16 are allowed",
	})
}

func TestInvalidResultIsAnError(t *testing.T) {
	for _, result := range []string{"", "{", "[]", `"x"`, `{"cniVersion":"9.0.0"}`, `{"cniVersion":"1.0.0","ips":[{"address":"x"}]}`} {
		if got, _, err := metadata.NetworkData([]byte(result), "net1", netns); err == nil {
			t.Errorf("%q gives %+v", result, got)
		}
	}
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
	const result = `{"cniVersion": %q, "interfaces": [{"name": "net1", "mtu": 1300}, {"name": "net1", "sandbox": "/ns", "mtu": %d}]}`
	for _, test := range []struct {
		version string
		mtu     int
		plugins string
		want    int64
	}{
		{"1.1.0", 9000, `{"mtu": 1400}`, 9000},
		{"1.1.0", 0, `{"mtu": 1400}`, 1400},
		{"0.4.0", 9000, `{"mtu": 1600}, {"type": "tuning", "mtu": 1400}, {"type": "x"}`, 1400}, // this version has no MTU in results
		{"1.1.0", 67, `{"mtu": 67}`, 1500},
		{"1.1.0", 0, `{"mtu": 1400}, {"mtu": "9000"}, {"mtu": 9000.5}, {"mtu": null}`, 1400},
		{"1.1.0", 0, `{"type": "x"}`, 1500},
		{"no version", 9000, `{"type": "x"}`, 1500},
	} {
		list := fmt.Appendf(nil, `{"mtu": 1200, "plugins": [%s]}`, test.plugins)
		if got := metadata.MTUOf(fmt.Appendf(nil, result, test.version, test.mtu), list, "net1", "/ns"); got != test.want {
			t.Errorf("%+v: got %d", test, got)
		}
	}
}
