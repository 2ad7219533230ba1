package apiserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/dra/status"
)

func TestWhatTheServerRefusesIsLeftOut(t *testing.T) {
	p := server(t)
	agent := p.agent(t)
	for name, test := range map[string]struct {
		change  func(*resourceapi.AllocatedDeviceStatus)
		dropped []string // nil = nothing is refused
	}{
		"data-10240":   {func(d *resourceapi.AllocatedDeviceStatus) { d.Data.Raw = object(10240) }, nil},
		"data-10241":   {func(d *resourceapi.AllocatedDeviceStatus) { d.Data.Raw = object(10241) }, []string{"data"}},
		"data-list":    {func(d *resourceapi.AllocatedDeviceStatus) { d.Data.Raw = []byte("[1]") }, []string{"data"}},
		"ips-16":       {func(d *resourceapi.AllocatedDeviceStatus) { d.NetworkData.IPs = addresses(16) }, nil},
		"ips-17":       {func(d *resourceapi.AllocatedDeviceStatus) { d.NetworkData.IPs = addresses(17) }, []string{"networkData"}},
		"ips-twice":    {func(d *resourceapi.AllocatedDeviceStatus) { d.NetworkData.IPs = []string{"10.0.0.1/8", "10.0.0.1/8"} }, []string{"networkData"}},
		"ips-notation": {func(d *resourceapi.AllocatedDeviceStatus) { d.NetworkData.IPs = []string{"FD00::1/64"} }, []string{"networkData"}},
		"mac-128":      {func(d *resourceapi.AllocatedDeviceStatus) { d.NetworkData.HardwareAddress = strings.Repeat("m", 128) }, nil},
		"mac-129":      {func(d *resourceapi.AllocatedDeviceStatus) { d.NetworkData.HardwareAddress = strings.Repeat("m", 129) }, []string{"networkData"}},
		"both": {func(d *resourceapi.AllocatedDeviceStatus) {
			d.Data.Raw, d.NetworkData.IPs = object(10241), addresses(17)
		}, []string{"data", "networkData"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := p.claim(t, name, ours("net", one), ours("other", two))
			changed := attached(t, one)
			test.change(&changed)
			whole := report(c, changed, attached(t, two))
			err := status.Apply(t.Context(), agent, whole)
			var partial *status.Partial
			if errors.As(err, &partial) {
				slices.Sort(partial.Dropped)
				difftest.Equal(t, partial.Dropped, test.dropped)
			} else if err != nil || test.dropped != nil {
				t.Fatalf("error %v", err)
			}
			if whole.Devices[1].Data == nil || whole.Devices[1].NetworkData == nil {
				t.Error("the caller's devices are changed")
			}
			for _, d := range p.devices(t, c) {
				if (d.Data == nil) != slices.Contains(test.dropped, "data") || (d.NetworkData == nil) != slices.Contains(test.dropped, "networkData") || len(d.Conditions) != 1 {
					t.Errorf("%+v", d)
				}
			}
		})
	}
}

// object is a JSON object of that many bytes.
func object(size int) []byte { return []byte(`{"a":"` + strings.Repeat("x", size-8) + `"}`) }

func addresses(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("10.0.0.%d/8", i))
	}
	return list
}

// The API server measures its own text of the data, which is not ours.
func TestTheServerTakesWhateverDataAndNetworkDataLeave(t *testing.T) {
	p := server(t)
	agent := p.agent(t)
	c := p.claim(t, "fits", ours("net", one))
	for name, result := range map[string]string{
		"escapes":    `{"cniVersion":"1.0.0","a":"` + strings.Repeat("<", 1700) + `"}`,
		"more":       `{"cniVersion":"1.0.0","a":"` + strings.Repeat("&\u2028\u00e9", 700) + `"}`,
		"numbers":    `{"cniVersion":"1.0.0","a":[1e3,0.10,12345678901234567890,-0]}`,
		"routes":     `{"cniVersion":"1.0.0","routes":[` + strings.TrimSuffix(strings.Repeat(`{"dst":"10.0.0.0/8"},`, 1000), ",") + `]}`,
		"an IP list": `{"cniVersion":"1.0.0","ips":[{"address":"` + strings.Join(append(addresses(20), "::ffff:10.0.0.1/104", "FD00::1/64"), `"},{"address":"`) + `"}]}`,
	} {
		network, _, err := metadata.NetworkData(json.RawMessage(result), "net1", "/a")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s, _ := deviceOf(one).Attached(json.RawMessage(result), network)
		if s.Data == nil {
			t.Errorf("%s: there is no data", name)
		}
		if err := status.Apply(t.Context(), agent, report(c, s)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
