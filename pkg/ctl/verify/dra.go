package verify

import (
	"encoding/json"
	"errors"
	"fmt"

	"devinfo-cni.io/pkg/dra/cniconfig"
)

// draDriver is the driver whose parameters are checked.
const draDriver = "cni.dra.networking.x-k8s.io"

// The kinds of resource.k8s.io that have parameters.
const (
	deviceClass   = "DeviceClass"
	claimKind     = "ResourceClaim"
	claimTemplate = "ResourceClaimTemplate"
)

// deviceConfig is an element of spec.config of a DeviceClass, or of spec.devices.config of
// a ResourceClaim (resource.k8s.io/v1).
type deviceConfig struct {
	Opaque *struct {
		Driver     string
		Parameters json.RawMessage
	}
}

// draIn checks the CNI configurations of a DeviceClass, a ResourceClaim or a template of
// one.
func (c Checker) draIn(s *sheet, data json.RawMessage) {
	var object struct {
		Kind string
		Spec json.RawMessage
	}
	if err := json.Unmarshal(data, &object); err != nil {
		s.wrong("$", data, "must be an object of resource.k8s.io/v1 with a spec")
		return
	}
	path, spec, fromClass := "$.spec", object.Spec, object.Kind == deviceClass
	if object.Kind == claimTemplate {
		var template struct{ Spec json.RawMessage }
		if json.Unmarshal(spec, &template) != nil {
			s.wrong("$.spec", spec, "must be an object with the spec of a ResourceClaim")
			return
		}
		path, spec = "$.spec.spec", template.Spec
	}
	var class struct{ Config []deviceConfig }
	var claim struct {
		Devices struct{ Config []deviceConfig }
	}
	var err error
	if fromClass {
		path, err = path+".config", json.Unmarshal(spec, &class)
	} else {
		path, err = path+".devices.config", json.Unmarshal(spec, &claim)
	}
	if err != nil && spec != nil {
		s.wrong(path, spec, "must have a list of device configurations, config (resource.k8s.io/v1)")
		return
	}
	for n, config := range append(class.Config, claim.Devices.Config...) {
		if config.Opaque != nil && config.Opaque.Driver == draDriver {
			c.parameters(s, fmt.Sprintf("%s[%d].opaque.parameters", path, n), config.Opaque.Parameters, fromClass)
		}
	}
}

// parameters checks those of our driver, CNIConfig, and the CNI configuration in them.
func (c Checker) parameters(s *sheet, path string, raw json.RawMessage, fromClass bool) {
	var refusal *cniconfig.Refusal
	if err := cniconfig.CheckParameters(raw, fromClass); errors.As(err, &refusal) {
		s.wrong(path, raw, "%s: %s", refusal.Rule, refusal.Remedy)
		return
	}
	var in struct{ Config map[string]json.RawMessage }
	if json.Unmarshal(raw, &in) != nil || in.Config == nil {
		return // ifName alone
	}
	if !fromClass {
		s.warn(path+".config", nil, "only nodes that run cni-dra-driver with --allow-claim-config take a config from a claim")
	}
	c.list(s, path+".config", in.Config, network{dra: true})
}
