package validate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/dra/cniconfig"
)

const notOurs = "nothing in it is for the driver " + view.Driver // the reason for skipping an object

// tooLong returns why no ADD can record an attachment to the network; "" = one can. A file is named after the network, after a
// container ID of 64 digits, as containerd and CRI-O have them, and after an interface such as eth0 or net1.
func tooLong(network string) (why string) {
	err := journal.Key{Network: network, ContainerID: strings.Repeat("0", 64), IfName: "net1"}.Check()
	if err != nil {
		_, why, _ = strings.Cut(err.Error(), ": ") // without the name of the file
	}
	return why
}

// classes are the DeviceClasses that can be decoded, by name.
type classes map[string]*resourceapi.DeviceClassSpec

func classesIn(docs []Document) classes {
	all := classes{}
	for _, d := range docs {
		var class resourceapi.DeviceClass
		if d.object.Kind == deviceClass && json.Unmarshal(d.data, &class) == nil {
			all[class.Name] = &class.Spec
		}
	}
	return all
}

// parameters checks a DeviceClass, a ResourceClaim or a ResourceClaimTemplate. It reports what Prepare
// would refuse, and what ADD would refuse of the CNI configurations.
func (c Checker) parameters(d *Document) {
	former := d.object.APIVersion == "resource.k8s.io/v1alpha3" || d.object.APIVersion == "resource.k8s.io/v1beta1"
	if former && d.object.Kind != deviceClass { // requests have other keys
		d.Skipped = "it is of " + d.object.APIVersion + "; convert it to resource.k8s.io/v1"
		return
	}
	switch d.object.Kind {
	case deviceClass:
		if class := new(resourceapi.DeviceClass); d.decode(class) {
			c.class(d, &class.Spec)
		}
	case claimKind:
		if claim := new(resourceapi.ResourceClaim); d.decode(claim) {
			c.claim(d, "spec.devices", &claim.Spec.Devices)
		}
	case claimTemplate:
		if template := new(resourceapi.ResourceClaimTemplate); d.decode(template) {
			c.claim(d, "spec.spec.devices", &template.Spec.Spec.Devices)
		}
	default:
		d.wrong("kind", config.Object(d.data)["kind"], "must be %s, %s or %s", deviceClass, claimKind, claimTemplate)
	}
}

// decode decodes a Kubernetes object. If the object does not match the API's type, it adds a finding and returns
// false.
func (d *Document) decode(into any) bool {
	err := json.Unmarshal(d.data, into)
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		d.wrong(wrong.Field, nil, "must be %s (resource.k8s.io/v1), not a JSON %s", config.TypeInWords(wrong.Type), wrong.Value)
	} else if err != nil {
		d.wrong("", nil, "must be as in resource.k8s.io/v1: %v", err)
	}
	return err == nil
}

func (c Checker) class(d *Document, class *resourceapi.DeviceClassSpec) {
	d.refused("spec", cniconfig.Policy{Driver: view.Driver}.CheckClass(class), notOurs)
	for n, config := range class.Config[:min(len(class.Config), resourceapi.DeviceConfigMaxSize)] {
		c.config(d, fmt.Sprintf("spec.config[%d]", n), config.Opaque, true)
	}
}

func (c Checker) claim(d *Document, path string, claim *resourceapi.DeviceClaim) {
	policy := cniconfig.Policy{Driver: view.Driver, AllowClaimTypes: c.ClaimTypes}
	d.refused(path, policy.CheckClaim(claim, c.classes), cmp.Or(c.missing(claim.Requests), notOurs))
	for n, config := range claim.Config[:min(len(claim.Config), resourceapi.DeviceConfigMaxSize)] {
		c.config(d, fmt.Sprintf("%s.config[%d]", path, n), config.Opaque, false)
	}
}

// refused adds the errors that cniconfig has found below path. If no configuration in the document is for our
// driver, it skips the document with the reason skipped.
func (d *Document) refused(path string, checked cniconfig.Checked, skipped string) {
	for _, r := range checked.Wrong {
		d.find("claim", strings.TrimSuffix(path+"."+r.At, "."), nil, "rule", strings.TrimPrefix(r.Rule, "device: "), "remedy", r.Remedy)
	}
	if !checked.Ours {
		d.Skipped = skipped
	}
}

// missing says which of the requested classes is not among the classes; "" = none.
func (c Checker) missing(requests []resourceapi.DeviceRequest) string {
	var names []string
	for _, r := range requests {
		if r.Exactly != nil {
			names = append(names, r.Exactly.DeviceClassName)
		}
		for _, sub := range r.FirstAvailable {
			names = append(names, sub.DeviceClassName)
		}
	}
	for _, name := range names {
		if c.classes[name] == nil {
			return fmt.Sprintf("its DeviceClass %q is missing, or has errors; give the file of the DeviceClass too", name)
		}
	}
	return ""
}

// config checks the CNI configuration in our driver's opaque parameters.
func (c Checker) config(d *Document, path string, opaque *resourceapi.OpaqueDeviceConfiguration, isClass bool) {
	if opaque == nil || opaque.Driver != view.Driver {
		return
	}
	n := network{Checker: c, Document: d, path: path + ".opaque.parameters.config", dra: true}
	if n.object = config.Object(config.Object(opaque.Parameters.Raw)["config"]); len(n.object) == 0 {
		return // there is only ifName, or cniconfig has refused the configuration
	}
	if !isClass && c.ClaimTypes == nil {
		d.find("claim-config", n.path, n.object["type"])
	}
	n.check()
}
