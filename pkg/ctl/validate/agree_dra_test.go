package validate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/binding"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/hostdev"
)

const draDriver = "cni.dra.networking.x-k8s.io"

// A claimCase is a claim and the configs of its class lan. The class gpu always exists too.
type claimCase struct {
	class string // configs of the class lan, in YAML; "" = lanClass
	claim string // spec.devices, in YAML; "" = lanClaim
}

const (
	head     = `apiVersion: cni.networking.x-k8s.io/v1alpha1, kind: CNIConfig`
	lan      = `config: {cniVersion: 1.0.0, name: lan, plugins: [{type: macvlan, capabilities: {mac: true}}]}`
	lanClass = `[{opaque: {driver: ` + draDriver + `, parameters: {` + head + `, ifName: net1, allowedClaimArgs: [mac, ips], ` + lan + `}}}]`
	lanClaim = `requests: [{name: a, exactly: {deviceClassName: lan}}]`
)

// ours returns a class's config with these keys.
func ours(keys string) string {
	return `[{opaque: {driver: ` + draDriver + `, parameters: {` + head + `, ` + keys + `}}}]`
}

// own returns a claim for one device of lan with a config.
func own(keys string) string { return lanClaim + "\nconfig: " + ours(keys) }

var claimCases = map[string]claimCase{
	"good":                                    {},
	"a name":                                  {claim: own("ifName: net7")},
	"count 1":                                 {claim: `requests: [{name: a, exactly: {deviceClassName: lan, count: 1, allocationMode: ExactCount}}]`},
	"count 2":                                 {claim: `requests: [{name: a, exactly: {deviceClassName: lan, count: 2}}]`},
	"all":                                     {claim: `requests: [{name: a, exactly: {deviceClassName: lan, allocationMode: All}}]`},
	"an unknown mode":                         {claim: `requests: [{name: a, exactly: {deviceClassName: lan, allocationMode: Some}}]`},
	"admin access":                            {claim: `requests: [{name: a, exactly: {deviceClassName: lan, adminAccess: true}}]`},
	"count 2 in an alternative":               {claim: `requests: [{name: a, firstAvailable: [{name: p, deviceClassName: lan}, {name: q, deviceClassName: lan, count: 2}]}]`},
	"alternatives":                            {claim: `requests: [{name: a, firstAvailable: [{name: p, deviceClassName: lan}, {name: q, deviceClassName: lan}]}]` + "\nconfig: [{requests: [a/q], opaque: {driver: " + draDriver + ", parameters: {" + head + ", ifName: net2}}}]"},
	"another driver's count":                  {claim: `requests: [{name: a, exactly: {deviceClassName: lan}}, {name: g, exactly: {deviceClassName: gpu, count: 8}}]`},
	"another driver's config":                 {claim: lanClaim + "\nconfig: [{opaque: {driver: gpu.example.com, parameters: {a: b}}}]"},
	"two requests of a name":                  {claim: `requests: [{name: a, exactly: {deviceClassName: lan}}, {name: b, exactly: {deviceClassName: lan}}]`},
	"two requests, counted":                   {class: strings.ReplaceAll(lanClass, "net1", `"net{index}"`), claim: `requests: [{name: a, firstAvailable: [{name: p, deviceClassName: lan}, {name: q, deviceClassName: lan}]}, {name: b, exactly: {deviceClassName: lan}}]`},
	"two requests, two names":                 {claim: `requests: [{name: a, exactly: {deviceClassName: lan}}, {name: b, exactly: {deviceClassName: lan}}]` + "\nconfig: [{requests: [b], opaque: {driver: " + draDriver + ", parameters: {" + head + ", ifName: net2}}}]"},
	"two configs for a request":               {claim: lanClaim + "\nconfig: " + strings.TrimSuffix(ours("ifName: net2"), "]") + ", " + strings.TrimPrefix(ours("ifName: net3"), "[")},
	"two configs of a class":                  {class: strings.TrimSuffix(lanClass, "]") + ", " + strings.TrimPrefix(ours("ifName: net3"), "[")},
	"class and claim give configs":            {claim: own("ifName: net2, " + lan)},
	"a config of the claim alone":             {class: ours("ifName: net1"), claim: own(lan)},
	"no config anywhere":                      {class: ours("ifName: net1")},
	"no name anywhere":                        {class: ours(lan)},
	"no version, no kind":                     {class: "[{opaque: {driver: " + draDriver + ", parameters: {ifName: net1}}}]"},
	"eth0":                                    {claim: own("ifName: eth0")},
	"a mac":                                   {claim: own(`mac: "02:00:00:00:00:07"`)},
	"an invalid mac":                          {claim: own(`mac: "02:00"`)},
	"a key that is not allowed":               {claim: own(`bandwidth: {ingressRate: 1}`)},
	"a value that no plugin uses":             {claim: own(`ips: [10.0.0.1]`)},
	"an unknown key":                          {claim: own("ifname: net2")},
	"a class's key in a claim":                {claim: own("waitForAttach: false")},
	"a mistyped driver in a class":            {class: strings.Replace(lanClass, draDriver, "cni.dra.networking.k8s.io", 1), claim: own("ifName: net2")},
	"a mistyped driver in a claim":            {class: ours("ifName: net1"), claim: strings.Replace(own(lan), draDriver, "cni.dra.networking.k8s.io", 1)},
	"a config for no request":                 {class: ours("ifName: net1"), claim: lanClaim + "\nconfig: [{requests: [b], opaque: {driver: " + draDriver + ", parameters: {" + head + ", " + lan + "}}}]"},
	"a mistyped apiVersion":                   {class: strings.Replace(lanClass, "v1alpha1", "v1", 1)},
	"an unknown version":                      {class: strings.Replace(lanClass, "1.0.0", "9.0.0", 1)},
	"a plugin with a path":                    {class: strings.Replace(lanClass, "macvlan", "../macvlan", 1)},
	"no plugins":                              {class: ours("ifName: net1, config: {cniVersion: 1.0.0, name: lan, plugins: []}")},
	"a waitForAttach that is not a boolean":   {class: ours("ifName: net1, waitForAttach: late, " + lan)},
	"an unknown driver":                       {class: ours("ifName: net1, driver: vfio, " + lan)},
	"a device mapping":                        {class: ours("ifName: net1, device: [{plugin: macvlan, key: deviceID}], " + lan)},
	"a device mapping with an unknown key":    {class: ours("ifName: net1, device: [{plugin: macvlan, key: vf}], " + lan)},
	"a device mapping for a missing plugin":   {class: ours("ifName: net1, device: [{plugin: sriov, key: deviceID}], " + lan)},
	"a device mapping without the capability": {class: ours("ifName: net1, device: [{plugin: macvlan, key: runtimeConfig.deviceID}], " + lan)},
}

// documents returns the two classes and the claim as a List.
func (c claimCase) documents(t *testing.T) (list string, lanClassSpec resourceapi.DeviceClassSpec, devices resourceapi.DeviceClaim) {
	t.Helper()
	class, claim := c.class, c.claim
	if class == "" {
		class = lanClass
	}
	if claim == "" {
		claim = lanClaim
	}
	must(t, yaml.UnmarshalStrict([]byte("config: "+class), &lanClassSpec))
	must(t, yaml.UnmarshalStrict([]byte(claim), &devices))
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
`, draDriver, class, strings.ReplaceAll(claim, "\n", "\n    "))
	return list, lanClassSpec, devices
}

// allocated returns the claim with the allocations that a scheduler could choose, one for each alternative.
func allocated(class resourceapi.DeviceClassSpec, devices resourceapi.DeviceClaim) (claims []*resourceapi.ResourceClaim) {
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
			driver := "gpu.example.com"
			if className == "lan" {
				driver = draDriver
				for _, config := range class.Config {
					allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
						Source: resourceapi.AllocationConfigSourceClass, Requests: []string{ref}, DeviceConfiguration: config.DeviceConfiguration})
				}
			}
			for range count {
				allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Request: ref, Driver: driver, Pool: "node", Device: "vf"})
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

// prepare returns the error of Prepare for a claim that got a VF; nil = none.
func prepare(claim *resourceapi.ResourceClaim) error {
	networks, err := cniconfig.Resolve(claim, cniconfig.Policy{Driver: draDriver, AllowClaimTypes: []string{"macvlan"}})
	for _, n := range networks {
		if n.DeviceKeys == nil {
			continue
		}
		_, _, err = binding.Bind(n.List, inventory.Device{Name: "vf", Ref: hostdev.Ref{Kind: hostdev.VF, PCI: "0000:03:00.0"}}, inventory.Exclusive, n.DeviceKeys)
	}
	return err
}

// validate reports an error exactly if Prepare refuses the claim.
func validateFindsWhatPrepareRefuses(t *testing.T, said *messages) {
	for _, name := range slices.Sorted(maps.Keys(claimCases)) {
		c := claimCases[name]
		t.Run(name, func(t *testing.T) {
			text, class, devices := c.documents(t)
			var refused []string
			for _, claim := range allocated(class, devices) {
				if err := prepare(claim); err != nil {
					refused = append(refused, err.Error())
				}
			}
			all := check(validate.Checker{ClaimTypes: []string{"macvlan"}}, text, "")
			var found, every []string
			for _, d := range all {
				for _, f := range foundIn(d) {
					every = append(every, d.Name+": "+f)
				}
				if d.Errors() > 0 {
					found = every
				}
			}
			said.add(name, nil, "Prepare", slices.Compact(refused), "validate", every)
			if len(refused) > 0 != (len(found) > 0) {
				t.Errorf("Prepare refuses: %q\nvalidate finds: %q", slices.Compact(refused), found)
			}
		})
	}
}
