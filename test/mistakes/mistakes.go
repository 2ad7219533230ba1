// Package mistakes has claims and DeviceClasses for cni-dra-driver with one mistake each, and some without. Prepare,
// devinfoctl validate and the ValidatingAdmissionPolicy must agree about them.
package mistakes

import (
	"cmp"
	_ "embed"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/binding"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/test/difftest"
)

const driver = "cni.dra.networking.x-k8s.io"

// Allowed is the only CNI plugin that claims may configure.
const Allowed = "macvlan"

// A Case is a claim and the configs of its class lan.
type Case struct {
	Class  string // configs of the class lan, in YAML
	Claim  string // spec.devices, in YAML
	Unseen string // why the policy accepts what Prepare refuses; "" = it refuses that too
}

//go:embed cases.yaml
var text string

// Cases are the cases by name.
var Cases = func() (cases map[string]Case) {
	texts := strings.NewReplacer("DRIVER", driver, "HEAD", "apiVersion: cni.networking.x-k8s.io/v1alpha1, kind: CNIConfig",
		"LAN", "config: {cniVersion: 1.0.0, name: lan, plugins: [{type: macvlan, capabilities: {mac: true}}]}")
	if err := yaml.UnmarshalStrict([]byte(texts.Replace(text)), &cases); err != nil {
		panic(err)
	}
	for name, c := range cases {
		cases[name] = Case{cmp.Or(c.Class, cases["good"].Class), cmp.Or(c.Claim, cases["good"].Claim), c.Unseen}
	}
	return cases
}()

// Documents returns the two classes and the claim as a List.
func (c Case) Documents(t *testing.T) (list string, lanClassSpec resourceapi.DeviceClassSpec, devices resourceapi.DeviceClaim) {
	t.Helper()
	difftest.Must(t, yaml.UnmarshalStrict([]byte("config: "+c.Class), &lanClassSpec), yaml.UnmarshalStrict([]byte(c.Claim), &devices))
	list = fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: lan}
spec:
  selectors: [{cel: {expression: "device.driver == '%s'"}}]
  config: %s
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {config: [{opaque: {driver: gpu.example.com, parameters: {a: b}}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    %s
`, driver, c.Class, strings.ReplaceAll(c.Claim, "\n", "\n    "))
	return list, lanClassSpec, devices
}

// Allocated returns the claim with the allocations that a scheduler could choose, one for each alternative.
func Allocated(class resourceapi.DeviceClassSpec, devices resourceapi.DeviceClaim) (claims []*resourceapi.ResourceClaim) {
	for alternative := range 2 {
		c := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: devices}}
		allocation := &resourceapi.AllocationResult{}
		for _, r := range devices.Requests {
			ref, className, count := r.Name, "", int64(1)
			if r.Exactly != nil {
				className, count = r.Exactly.DeviceClassName, max(1, r.Exactly.Count)
			} else {
				sub := r.FirstAvailable[alternative]
				ref, className, count = r.Name+"/"+sub.Name, sub.DeviceClassName, max(1, sub.Count)
			}
			from := "gpu.example.com"
			if className == "lan" {
				from = driver
				for _, config := range class.Config {
					allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
						Source: resourceapi.AllocationConfigSourceClass, Requests: []string{ref}, DeviceConfiguration: config.DeviceConfiguration})
				}
			}
			for range count {
				allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Request: ref, Driver: from, Pool: "node", Device: "vf"})
			}
		}
		for _, config := range devices.Config {
			allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
				Source: resourceapi.AllocationConfigSourceClaim, Requests: config.Requests, DeviceConfiguration: config.DeviceConfiguration})
		}
		c.Status.Allocation = allocation
		claims = append(claims, c)
	}
	return claims
}

// Prepare returns the error of Prepare for a claim that got a VF; nil = none.
func Prepare(claim *resourceapi.ResourceClaim) error {
	bind := func(at *state.Attachment, keys cniconfig.DeviceKeys) (wrong *cniconfig.Refusal) {
		if keys != nil {
			vf := inventory.Device{Name: "vf", Ref: hostdev.Ref{Kind: hostdev.VF, PCI: "0000:03:00.0"}}
			_, _, wrong = binding.Configure(at.List, vf, journal.Exclusive, keys)
		}
		return wrong
	}
	_, err := cniconfig.Resolve(claim, cniconfig.Policy{Driver: driver, AllowClaimTypes: []string{Allowed}, Bind: bind})
	return err
}
