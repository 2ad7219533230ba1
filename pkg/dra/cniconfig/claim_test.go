package cniconfig_test

import (
	"encoding/json"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/test/difftest"
)

const driver = "cni.dra.networking.x-k8s.io"

var share = "7d1c3a2f-6f3e-4b8f-9d0a-3c5f3f0e7a11"

// claim returns an allocated claim with one request, "net", for the driver. It is reserved for the pod default/demo.
// Each config is "SOURCE PARAMETERS" with source "class" or "claim".
func claim(t testing.TB, configs ...string) *resourceapi.ResourceClaim {
	t.Helper()
	c := &resourceapi.ResourceClaim{}
	c.Namespace, c.Name, c.UID = "default", "demo-net", "c1"
	request(c, "net")
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "demo", UID: "p1"}}
	for _, config := range configs {
		source, params, _ := strings.Cut(config, " ")
		configure(t, c, source, params)
	}
	return c
}

// configure adds a config for the requests, or for all requests.
func configure(t testing.TB, c *resourceapi.ResourceClaim, source, params string, requests ...string) {
	t.Helper()
	from := map[string]resourceapi.AllocationConfigSource{
		"class": resourceapi.AllocationConfigSourceClass, "claim": resourceapi.AllocationConfigSourceClaim,
	}[source]
	config := resourceapi.DeviceAllocationConfiguration{Source: from, Requests: requests}
	config.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: driver}
	config.Opaque.Parameters.Raw = []byte(params)
	c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, config)
}

// request adds a request and its allocated device.
func request(c *resourceapi.ResourceClaim, name string) {
	c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{
		Name: name, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "cni.networking.x-k8s.io", AllocationMode: "ExactCount", Count: 1},
	})
	if c.Status.Allocation == nil {
		c.Status.Allocation = &resourceapi.AllocationResult{}
	}
	c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
		Request: name, Driver: driver, Pool: "node-a", Device: "cni", ShareID: (*types.UID)(&share),
	})
}

// with wraps fields as parameters.
func with(fields string) string {
	return `{"apiVersion":"cni.networking.x-k8s.io/v1alpha1","kind":"CNIConfig",` + fields + `}`
}

const macvlan = `{"cniVersion":"1.0.0","name":"lan","plugins":[{"type":"macvlan","master":"eth0","ipam":{"type":"host-local","ranges":[[{"subnet":"10.10.1.0/24"}]]}}]}`

// node allows claims to use the plugins of macvlan.
var node = cniconfig.Policy{Driver: driver, Pool: "node-a", AllowClaimTypes: []string{"macvlan", "host-local"}}

// refused returns the error of Resolve.
func refused(t *testing.T, c *resourceapi.ResourceClaim, p cniconfig.Policy) *cniconfig.Refusal {
	t.Helper()
	networks, err := cniconfig.Resolve(c, p)
	if _, podErr := cniconfig.Pods(c); podErr != nil {
		networks, err = nil, podErr
	}
	refusal := difftest.As[*cniconfig.Refusal](t, err)
	if networks != nil {
		t.Errorf("it is refused, and yet gives %v", networks)
	}
	if refusal.Rule == "" || refusal.Remedy == "" {
		t.Errorf("no rule or no remedy: %+v", refusal)
	}
	return refusal
}

func resolve(t *testing.T, c *resourceapi.ResourceClaim, p cniconfig.Policy) []cniconfig.Network {
	t.Helper()
	networks, err := cniconfig.Resolve(c, p)
	difftest.Must(t, err)
	pods, err := cniconfig.Pods(c)
	if want := (state.Pod{Namespace: "default", Name: "demo", UID: "p1"}); err != nil || len(pods) != 1 || pods[0] != want {
		t.Errorf("pods %+v, %v, want %+v", pods, err, want)
	}
	return networks
}

func TestAPIExampleIsAcceptedInBothGroupsAndKinds(t *testing.T) {
	want := []cniconfig.Network{{Attachment: state.Attachment{
		Request: "macvlan-eth0", Pool: "kind-worker", Device: "cni", IfName: "net1", Network: "macvlan-eth0", CNIVersion: "1.0.0", Phase: state.Prepared,
		List: json.RawMessage(`{"cniVersion":"1.0.0","name":"macvlan-eth0","plugins":[{"ipam":{"ranges":[[{"subnet":"10.10.1.0/24"}]],"type":"host-local"},"master":"eth0","mode":"bridge","type":"macvlan"}]}`),
	}}}
	example := difftest.Read(t, "testdata/example.yaml")
	for _, group := range []string{"cni.networking.x-k8s.io", "cni.dra.networking.x-k8s.io"} {
		for _, kind := range []string{"CNI", "CNIConfig"} {
			c := &resourceapi.ResourceClaim{}
			difftest.Must(t, yaml.UnmarshalStrict([]byte(strings.NewReplacer("GROUP", group, "KIND", kind).Replace(example)), c))
			p := cniconfig.Policy{Driver: driver, Pool: "kind-worker", AllowClaimTypes: []string{"macvlan", "host-local"}}
			networks, err := cniconfig.Resolve(c, p)
			difftest.Must(t, err)
			difftest.Equal(t, networks, want)
			pods, err := cniconfig.Pods(c)
			difftest.Must(t, err)
			difftest.Equal(t, pods, []state.Pod{{Namespace: "default", Name: "demo-a", UID: "680f0a77-8d0b-4e21-8599-62581e335ed6"}})

			p.AllowClaimTypes = nil
			difftest.Contains(t, refused(t, c, p).Remedy, "--allow-claim-config")
		}
	}
}
