package metadata_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

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
	const result = `{"cniVersion": %q, "interfaces": [{"name": "net1", "mtu": 1300}, {"name": "net1", "sandbox": "/ns", "mtu": %s}]}`
	goldentest.Lines(t, "testdata/mtu.txt", func(line string) []string {
		part := strings.SplitN(line, " ", 3)
		list := fmt.Appendf(nil, `{"mtu": 1200, "plugins": [%s]}`, part[2])
		return []string{fmt.Sprint(metadata.MTUOf(fmt.Appendf(nil, result, part[0], part[1]), list, "net1", "/ns"))}
	})
}
