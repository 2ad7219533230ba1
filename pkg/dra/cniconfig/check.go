package cniconfig

import resourceapi "k8s.io/api/resource/v1"

// CheckParameters says what is wrong with the parameters of a DeviceClass, or else of a
// claim, before anything is allocated. What only a node can tell, whether a claim may give
// a configuration, is taken for allowed. An error is a [*Refusal].
func CheckParameters(raw []byte, fromClass bool) error {
	source := resourceapi.AllocationConfigSourceClass
	if !fromClass {
		source = resourceapi.AllocationConfigSourceClaim
	}
	p := Policy{AllowClaimTypes: []string{""}}
	scanned, refusal := scan(raw)
	if refusal != nil {
		return refusal
	}
	for _, t := range scanned.types { // as if the administrator trusted them all
		p.AllowClaimTypes = append(p.AllowClaimTypes, t.value)
	}
	params, refusal := p.decode(raw, source)
	if refusal == nil && params.ifName != "" {
		refusal = checkIfName(params.ifName)
	}
	if refusal == nil && params.config != nil {
		_, refusal = list(params.config)
	}
	if refusal != nil {
		return refusal
	}
	return nil
}
