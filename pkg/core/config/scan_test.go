package config_test

import (
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/test/difftest"
)

func TestDevicesAreFoundBetweenAllKindsOfJSON(t *testing.T) {
	for text, want := range map[string][]string{
		`{}`: nil, `5`: nil, `"x"`: nil, `{"_1": 2}`: nil,
		` { "deviceID" : "a" } `: {"d.deviceID a"},
		"{\"x\":[1,-0.5e+3,[],{},[true,false,null],\"]}\"],\n\t\"pciBusID\":\"b\"}": {"d.pciBusID b"},
		`{"x":"\\","y":"\"","z":"\\\"","hwaddr":"c"}`:                               {"d.hwaddr c"},
		`{"device\u0049D":"\u0061b","x":"{\"deviceID\":\"no\"}"}`:                   {"d.deviceID ab"},
		`{"runtimeConfig":{"deviceID":"e","pciBusID":"no"},"deviceID":5}`:           {"d.runtimeConfig.deviceID e"},
		`{"args":{"deviceID":"no"},"ipam":{"device":"no","x":{"deviceID":"no"}}}`:   nil,
		`{"delegates":[{"deviceID":"f"},{"delegate":{"kernelpath":"/sys/g"}}]}`:     {"d.delegates.deviceID f", "d.delegates.delegate.kernelpath /sys/g"},
		`{"DEVICEID":"é","DEVICE":""}`:                                              {"d.DEVICEID é"},
	} {
		devices, problem := config.DelegateDevices("d", []byte(text), nil)
		var got []string
		for _, d := range devices {
			got = append(got, d.Key+" "+d.Value)
		}
		if !slices.Equal(got, want) || problem != nil {
			t.Errorf("%s: got %q, %v, want %q", text, got, problem, want)
		}
	}
}

// Text that no JSON parser accepts must not make the search panic or go on for ever.
func FuzzDelegateDevices(f *testing.F) {
	f.Add([]byte(`{"a":[{"deviceID":"x\"y"},1,null],"b":{"device":"\u00e9"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		devices, _ := config.DelegateDevices("d", text, nil)
		if len(devices) > len(text) {
			t.Errorf("%d devices", len(devices))
		}
	})
}

// A configuration of megabytes costs no memory for each of its values.
func TestSearchForDevicesAllocatesNothingForOtherValues(t *testing.T) {
	text := []byte(`{"x":[` + strings.Repeat(`0,"y",`, 10000) + `{}],"deviceID":"a"}`)
	allocs := testing.AllocsPerRun(10, func() {
		devices, _ := config.DelegateDevices("d", text, nil)
		difftest.Equal(t, len(devices), 1)
	})
	if allocs > 50 {
		t.Errorf("%v allocations", allocs)
	}
}
