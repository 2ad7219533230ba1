package cniconfig_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/test/difftest"
)

func ours() state.Attachment {
	return state.Attachment{
		Request: "net", Pool: "node-a", Device: "cni", ShareID: &share, IfName: "net1", Network: "lan", CNIVersion: "1.0.0", List: json.RawMessage(macvlan), Phase: state.Prepared,
	}
}

func TestDevicesOfOtherDriversAreIgnored(t *testing.T) {
	c := claim(t, "class "+with(`"ifName":"net1","config":`+macvlan))
	configure(t, c, "claim", `not ours, and no JSON`)
	configure(t, c, "class", `nor this`)
	for n := range 2 {
		c.Status.Allocation.Devices.Config[n+1].Opaque.Driver = "gpu.example.com"
	}
	gpu := c.Status.Allocation.Devices.Results[0]
	gpu.Request, gpu.Driver = "gpu", "gpu.example.com"
	c.Status.Allocation.Devices.Results = append([]resourceapi.DeviceRequestAllocationResult{gpu}, c.Status.Allocation.Devices.Results...)
	difftest.Equal(t, resolve(t, c, node), []state.Attachment{ours()})
}

func TestRequestsOfOneClassNeedDifferentIfNames(t *testing.T) {
	two := func() *resourceapi.ResourceClaim {
		c := claim(t)
		request(c, "other")
		configure(t, c, "class", with(`"ifName":"net1","config":`+macvlan), "net")
		configure(t, c, "class", with(`"ifName":"net1","config":`+macvlan), "other")
		return c
	}
	if r := refused(t, two(), node); r.Request != "other" || !strings.Contains(r.Rule, `request "net" already uses ifName "net1"`) || !strings.Contains(r.Remedy, `"net{index}" in the DeviceClass`) {
		t.Error(r)
	}
	c := two()
	configure(t, c, "claim", with(`"ifName":"net2"`), "other")
	second := ours()
	second.Request, second.IfName = "other", "net2"
	difftest.Equal(t, resolve(t, c, node), []state.Attachment{ours(), second})
}

// The scheduler creates one request of the same class for each container with a limit, and users cannot add
// parameters to this claim.
func TestIndexCountsDevicesOfClaimWithSameIfName(t *testing.T) {
	c := claim(t)
	for _, name := range []string{"sidecar", "app", "other"} {
		request(c, name)
	}
	c.Spec.Devices.Requests[1].Exactly.Count = 2
	results := c.Status.Allocation.Devices.Results
	second := results[1]
	second.Device = "second"
	c.Status.Allocation.Devices.Results = append(results, second)
	configure(t, c, "class", with(`"ifName":"vf{index}","config":`+macvlan), "net", "sidecar", "app")
	configure(t, c, "class", with(`"ifName":"lan{index}","config":`+macvlan), "other")
	var got []string
	for _, n := range resolve(t, c, node) {
		got = append(got, fmt.Sprintf("%s %d %s", n.Request, n.Index, n.IfName))
	}
	difftest.Equal(t, got, []string{"net 0 vf0", "sidecar 0 vf1", "app 0 vf2", "other 0 lan0", "sidecar 1 vf3"})

	configure(t, c, "claim", with(`"ifName":"vf1"`), "app")
	if r := refused(t, c, node); r.Request != "app" || !strings.Contains(r.Rule, `request "sidecar" already uses ifName "vf1"`) {
		t.Error(r)
	}
}

func TestSubrequestsUseConfigOfTheirRequest(t *testing.T) {
	for _, ref := range []string{"net", "net/fast"} {
		c := claim(t)
		c.Spec.Devices.Requests[0] = resourceapi.DeviceRequest{Name: "net", FirstAvailable: []resourceapi.DeviceSubRequest{
			{Name: "slow", DeviceClassName: "a", AllocationMode: "All"}, {Name: "fast", DeviceClassName: "b"},
		}}
		c.Status.Allocation.Devices.Results[0].Request = "net/fast"
		configure(t, c, "class", with(`"ifName":"net1","config":`+macvlan), ref)
		configure(t, c, "class", with(`"ifName":"net1","config":`+macvlan), "net/slow")
		want := ours()
		want.Request = "net/fast"
		difftest.Equal(t, resolve(t, c, node), []state.Attachment{want})
		c.Spec.Devices.Requests[0].FirstAvailable[1].Count = 2
		if r := refused(t, c, node); r.Request != "net/fast" || !strings.Contains(r.Rule, "the request may have several devices") {
			t.Error(r)
		}
	}
}

// A device without a network does not become an interface.
func TestRequestWithoutNetworkMayHaveSeveralDevices(t *testing.T) {
	bare := node
	bare.Bare = func(string) bool { return true }
	several := func(mode resourceapi.DeviceAllocationMode, count int64) *resourceapi.ResourceClaim {
		c := claim(t)
		c.Spec.Devices.Requests[0].Exactly.AllocationMode, c.Spec.Devices.Requests[0].Exactly.Count = mode, count
		second := c.Status.Allocation.Devices.Results[0]
		second.Device = "second"
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, second)
		return c
	}
	for mode, count := range map[resourceapi.DeviceAllocationMode]int64{"ExactCount": 2, "All": 0} {
		if got := resolve(t, several(mode, count), bare); len(got) != 2 || got[0].List != nil || got[0].Device == got[1].Device {
			t.Errorf("%s: got %+v", mode, got)
		}
	}
	difftest.Contains(t, refused(t, several("Some", 2), bare).Rule, `allocationMode "Some"`)
}

// Package test/mistakes has mistakes in requests and configs.
func TestInvalidAllocationsAreRefused(t *testing.T) {
	yes := true
	for name, test := range map[string]struct {
		change func(*resourceapi.ResourceClaim)
		want   cniconfig.Refusal // Rule and Remedy are parts of the texts
	}{
		"not allocated": {func(c *resourceapi.ResourceClaim) { c.Status.Allocation = nil }, cniconfig.Refusal{Rule: "not allocated", Remedy: "scheduler"}},
		"for nobody":    {func(c *resourceapi.ResourceClaim) { c.Status.ReservedFor = nil }, cniconfig.Refusal{Rule: "not reserved for a pod", Remedy: "scheduler"}},
		"for a PodGroup": {func(c *resourceapi.ResourceClaim) {
			c.Status.ReservedFor[0].APIGroup, c.Status.ReservedFor[0].Resource = "scheduling.k8s.io", "podgroups"
		}, cniconfig.Refusal{Rule: `"podgroups" of API group "scheduling.k8s.io"`, Remedy: "ResourceClaimTemplate"}},
		"for another's pods": {func(c *resourceapi.ResourceClaim) { c.Status.ReservedFor[0].APIGroup = "example.com" }, cniconfig.Refusal{Rule: `"pods" of API group "example.com"`, Remedy: "ResourceClaimTemplate"}},
		"nothing of ours":    {func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Driver = "gpu.example.com" }, cniconfig.Refusal{Rule: "the claim has no devices of driver " + driver, Remedy: "DeviceClass"}},
		"another pool":       {func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Pool = "node-b" }, cniconfig.Refusal{Request: "net", Rule: `pool "node-b", not to pool "node-a"`, Remedy: "scheduler"}},
		"unknown request":    {func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Request = "x" }, cniconfig.Refusal{Request: "x", Rule: "missing from the claim's spec", Remedy: "create it again"}},
		"no subrequest":      {func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Request = "net/x" }, cniconfig.Refusal{Request: "net/x", Rule: "missing from the claim's spec", Remedy: "create it again"}},
		"admin allocation":   {func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[0].AdminAccess = &yes }, cniconfig.Refusal{Request: "net", Rule: "adminAccess: true", Remedy: "remove adminAccess"}},
		"two devices": {func(c *resourceapi.ResourceClaim) {
			another := c.Status.Allocation.Devices.Results[0]
			another.Device = "another"
			c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, another)
		}, cniconfig.Refusal{Request: "net", Rule: "the request may have several devices", Remedy: `"net{index}"`}},
		"config of another": {func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Config[0].Requests = []string{"y"} }, cniconfig.Refusal{Request: "net", Rule: "neither the DeviceClass nor the claim has a config for driver " + driver, Remedy: "DeviceClass"}},
		"unknown source":    {func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Config[0].Source = "FromPod" }, cniconfig.Refusal{Request: "net", Rule: `source "FromPod"`, Remedy: "update the driver"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(t, "class "+with(`"ifName":"net1","config":`+macvlan))
			resolve(t, c, node) // the claim is valid before the change
			test.change(c)
			r := refused(t, c, node)
			difftest.Equal(t, r.Request, test.want.Request)
			difftest.Contains(t, r.Rule, test.want.Rule)
			difftest.Contains(t, r.Remedy, test.want.Remedy)
			if r.Request != "" && !strings.HasPrefix(r.Error(), fmt.Sprintf("request %q: ", r.Request)) {
				t.Errorf("%q does not begin with the request", r.Error())
			}
		})
	}
}
