// Package mistakes has claims and DeviceClasses for cni-dra-driver with one mistake each, and some without. Prepare,
// devinfoctl validate and the ValidatingAdmissionPolicy must agree about them.
package mistakes

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/binding"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/test/difftest"
)

const driver = "cni.dra.networking.x-k8s.io"

// Allowed is the only CNI plugin that claims may configure.
const Allowed = "macvlan"

// A Case is a claim and the configs of its class lan. The class gpu always exists too.
type Case struct {
	Class  string // configs of the class lan, in YAML; "" = lanClass
	Claim  string // spec.devices, in YAML; "" = lanClaim
	Unseen string // why the policy accepts what Prepare refuses; "" = it refuses that too
}

// Reasons of Unseen.
const (
	together = "the class is needed to judge the claim"
	deep     = "the policy checks no other values"
)

const (
	head     = `apiVersion: cni.networking.x-k8s.io/v1alpha1, kind: CNIConfig`
	lan      = `config: {cniVersion: 1.0.0, name: lan, plugins: [{type: macvlan, capabilities: {mac: true}}]}`
	lanClass = `[{opaque: {driver: ` + driver + `, parameters: {` + head + `, ifName: net1, allowedClaimArgs: [mac, ips], ` + lan + `}}}]`
	lanClaim = `requests: [{name: a, exactly: {deviceClassName: lan}}]`
)

// ours returns a class's config with these keys.
func ours(keys string) string {
	return `[{opaque: {driver: ` + driver + `, parameters: {` + head + `, ` + keys + `}}}]`
}

// own returns a claim for one device of lan with a config.
func own(keys string) string { return lanClaim + "\nconfig: " + ours(keys) }

// Cases are the cases by name.
var Cases = map[string]Case{
	"good":                                    {},
	"a name":                                  {Claim: own("ifName: net7")},
	"count 1":                                 {Claim: `requests: [{name: a, exactly: {deviceClassName: lan, count: 1, allocationMode: ExactCount}}]`},
	"count 2":                                 {Claim: `requests: [{name: a, exactly: {deviceClassName: lan, count: 2}}]`, Unseen: together},
	"all":                                     {Claim: `requests: [{name: a, exactly: {deviceClassName: lan, allocationMode: All}}]`, Unseen: together},
	"an unknown mode":                         {Claim: `requests: [{name: a, exactly: {deviceClassName: lan, allocationMode: Some}}]`},
	"admin access":                            {Claim: `requests: [{name: a, exactly: {deviceClassName: lan, adminAccess: true}}]`},
	"count 2 in an alternative":               {Claim: `requests: [{name: a, firstAvailable: [{name: p, deviceClassName: lan}, {name: q, deviceClassName: lan, count: 2}]}]`, Unseen: together},
	"alternatives":                            {Claim: `requests: [{name: a, firstAvailable: [{name: p, deviceClassName: lan}, {name: q, deviceClassName: lan}]}]` + "\nconfig: [{requests: [a/q], opaque: {driver: " + driver + ", parameters: {" + head + ", ifName: net2}}}]"},
	"another driver's count":                  {Claim: `requests: [{name: a, exactly: {deviceClassName: lan}}, {name: g, exactly: {deviceClassName: gpu, count: 8}}]`},
	"another driver's config":                 {Claim: lanClaim + "\nconfig: [{opaque: {driver: gpu.example.com, parameters: {a: b}}}]"},
	"two requests of a name":                  {Claim: `requests: [{name: a, exactly: {deviceClassName: lan}}, {name: b, exactly: {deviceClassName: lan}}]`, Unseen: together},
	"two requests, counted":                   {Class: strings.ReplaceAll(lanClass, "net1", `"net{index}"`), Claim: `requests: [{name: a, firstAvailable: [{name: p, deviceClassName: lan}, {name: q, deviceClassName: lan}]}, {name: b, exactly: {deviceClassName: lan}}]`},
	"two requests, two names":                 {Claim: `requests: [{name: a, exactly: {deviceClassName: lan}}, {name: b, exactly: {deviceClassName: lan}}]` + "\nconfig: [{requests: [b], opaque: {driver: " + driver + ", parameters: {" + head + ", ifName: net2}}}]"},
	"two configs for a request":               {Claim: lanClaim + "\nconfig: " + strings.TrimSuffix(ours("ifName: net2"), "]") + ", " + strings.TrimPrefix(ours("ifName: net3"), "[")},
	"two configs of a class":                  {Class: strings.TrimSuffix(lanClass, "]") + ", " + strings.TrimPrefix(ours("ifName: net3"), "[")},
	"class and claim give configs":            {Claim: own("ifName: net2, " + lan), Unseen: together},
	"a config of the claim alone":             {Class: ours("ifName: net1"), Claim: own(lan)},
	"no config anywhere":                      {Class: ours("ifName: net1"), Unseen: together},
	"no name anywhere":                        {Class: ours(lan), Unseen: together},
	"no version, no kind":                     {Class: "[{opaque: {driver: " + driver + ", parameters: {ifName: net1}}}]"},
	"eth0":                                    {Claim: own("ifName: eth0")},
	"a mac":                                   {Claim: own(`mac: "02:00:00:00:00:07"`)},
	"an invalid mac":                          {Claim: own(`mac: "02:00"`), Unseen: deep},
	"a key that is not allowed":               {Claim: own(`bandwidth: {ingressRate: 1}`), Unseen: together},
	"a value that no plugin uses":             {Claim: own(`ips: [10.0.0.1]`), Unseen: together},
	"an unknown key":                          {Claim: own("ifname: net2")},
	"a class's key in a claim":                {Claim: own("waitForAttach: false")},
	"a mistyped driver in a class":            {Class: strings.Replace(lanClass, driver, "cni.dra.networking.k8s.io", 1), Claim: own("ifName: net2"), Unseen: together},
	"a mistyped driver in a claim":            {Class: ours("ifName: net1"), Claim: strings.Replace(own(lan), driver, "cni.dra.networking.k8s.io", 1), Unseen: together},
	"a config for no request":                 {Class: ours("ifName: net1"), Claim: lanClaim + "\nconfig: [{requests: [b], opaque: {driver: " + driver + ", parameters: {" + head + ", " + lan + "}}}]"},
	"a mistyped apiVersion":                   {Class: strings.Replace(lanClass, "v1alpha1", "v1", 1)},
	"an unknown version":                      {Class: strings.Replace(lanClass, "1.0.0", "9.0.0", 1), Unseen: deep},
	"a plugin with a path":                    {Class: strings.Replace(lanClass, "macvlan", "../macvlan", 1), Unseen: deep},
	"no plugins":                              {Class: ours("ifName: net1, config: {cniVersion: 1.0.0, name: lan, plugins: []}"), Unseen: deep},
	"a waitForAttach that is not a boolean":   {Class: ours("ifName: net1, waitForAttach: late, " + lan), Unseen: deep},
	"an unknown driver":                       {Class: ours("ifName: net1, driver: vfio, " + lan), Unseen: deep},
	"a counted name for two devices":          {Claim: strings.Replace(own(`ifName: "net{index}"`), "lan}", "lan, count: 2}", 1)},
	"one name for two devices":                {Claim: strings.Replace(own("ifName: net2"), "lan}", "lan, count: 2}", 1)},
	"one name for all devices":                {Claim: strings.Replace(own("ifName: net2"), "lan}", "lan, allocationMode: All}", 1)},
	"one name for two in an alternative":      {Claim: `requests: [{name: a, firstAvailable: [{name: p, deviceClassName: lan, count: 2}, {name: q, deviceClassName: lan}]}]` + "\nconfig: [{requests: [a/p], opaque: {driver: " + driver + ", parameters: {" + head + ", ifName: net2}}}]"},
	"two configs for an alternative":          {Claim: `requests: [{name: a, firstAvailable: [{name: p, deviceClassName: lan}, {name: q, deviceClassName: lan}]}]` + "\nconfig: [{requests: [a], opaque: {driver: " + driver + ", parameters: {" + head + ", ifName: net2}}}, {requests: [a/q], opaque: {driver: " + driver + ", parameters: {" + head + ", ifName: net3}}}]"},
	"a config for a gpu's count":              {Claim: `requests: [{name: a, exactly: {deviceClassName: lan}}, {name: g, exactly: {deviceClassName: gpu, count: 8}}]` + "\nconfig: " + ours("ifName: net2")},
	"another kind":                            {Claim: strings.Replace(own("ifName: net2"), "CNIConfig", "Pod", 1)},
	"no kind":                                 {Claim: strings.Replace(own("ifName: net2"), ", kind: CNIConfig", "", 1)},
	"a number as name":                        {Claim: own("ifName: 5")},
	"eth0 in a class":                         {Class: ours("ifName: eth0, " + lan)},
	"a name with a space":                     {Claim: own(`ifName: "net 1"`)},
	"a name with a slash":                     {Claim: own("ifName: a/b")},
	"a name with a format":                    {Claim: own("ifName: net%d")},
	"a name with a zero-width space":          {Claim: own(`ifName: "net\u200b1"`)},
	"a name of 15 bytes":                      {Claim: own("ifName: fifteen-letters")},
	"a name of 16 bytes":                      {Claim: own("ifName: éééééééé")},
	"a dot":                                   {Claim: own(`ifName: "."`)},
	"a name with an accent":                   {Claim: own("ifName: réseau")},
	"neither name nor config":                 {Claim: own("config: null")},
	"a config as a string":                    {Class: ours("ifName: net1"), Claim: own(`config: "{}"`)},
	"an unknown key of a class":               {Class: ours("ifName: net1, mtu: 9000, " + lan)},
	"a plugin that is not allowed":            {Class: ours("ifName: net1"), Claim: own(strings.Replace(lan, "macvlan", "bridge", 1))},
	"a single plugin that is not allowed":     {Class: ours("ifName: net1"), Claim: own("config: {cniVersion: 1.0.0, name: lan, type: bridge}")},
	"an IPAM that is not allowed":             {Class: ours("ifName: net1"), Claim: own(strings.Replace(lan, "type: macvlan", "type: macvlan, ipam: {type: dhcp}", 1))},
	"a delegate that is not allowed":          {Class: ours("ifName: net1"), Claim: own(strings.Replace(lan, "type: macvlan", "type: macvlan, delegates: [{type: macvlan, ipam: {type: dhcp}}]", 1))},
	"a type elsewhere":                        {Class: ours("ifName: net1"), Claim: own(strings.Replace(lan, "type: macvlan", "type: macvlan, args: {x: {type: dhcp}}", 1)), Unseen: "the policy looks at plugins, delegates and their IPAM only"},
	"any plugin in a class":                   {Class: strings.Replace(lanClass, "macvlan", "bridge", 1)},
	"a device mapping":                        {Class: ours("ifName: net1, device: [{plugin: macvlan, key: deviceID}], " + lan)},
	"a device mapping with an unknown key":    {Class: ours("ifName: net1, device: [{plugin: macvlan, key: vf}], " + lan), Unseen: deep},
	"a device mapping for a missing plugin":   {Class: ours("ifName: net1, device: [{plugin: sriov, key: deviceID}], " + lan), Unseen: deep},
	"a device mapping without the capability": {Class: ours("ifName: net1, device: [{plugin: macvlan, key: runtimeConfig.deviceID}], " + lan), Unseen: deep},
}

// Documents returns the two classes and the claim as a List.
func (c Case) Documents(t *testing.T) (list string, lanClassSpec resourceapi.DeviceClassSpec, devices resourceapi.DeviceClaim) {
	t.Helper()
	class, claim := c.Class, c.Claim
	if class == "" {
		class = lanClass
	}
	if claim == "" {
		claim = lanClaim
	}
	difftest.Must(t, yaml.UnmarshalStrict([]byte("config: "+class), &lanClassSpec))
	difftest.Must(t, yaml.UnmarshalStrict([]byte(claim), &devices))
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
`, driver, class, strings.ReplaceAll(claim, "\n", "\n    "))
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
	networks, err := cniconfig.Resolve(claim, cniconfig.Policy{Driver: driver, AllowClaimTypes: []string{Allowed}})
	for _, n := range networks {
		if n.DeviceKeys == nil {
			continue
		}
		_, _, err = binding.Bind(n.List, inventory.Device{Name: "vf", Ref: hostdev.Ref{Kind: hostdev.VF, PCI: "0000:03:00.0"}}, inventory.Exclusive, n.DeviceKeys)
	}
	return err
}
