package validate_test

import (
	"maps"
	"slices"
	"testing"

	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/test/mistakes"
)

// validate reports an error exactly if Prepare refuses the claim.
func validateFindsWhatPrepareRefuses(t *testing.T, said *messages) {
	for _, name := range slices.Sorted(maps.Keys(mistakes.Cases)) {
		c := mistakes.Cases[name]
		t.Run(name, func(t *testing.T) {
			text, class, devices := c.Documents(t)
			var refused []string
			for _, claim := range mistakes.Allocated(class, devices) {
				if err := mistakes.Prepare(claim); err != nil {
					refused = append(refused, err.Error())
				}
			}
			all := check(validate.Checker{ClaimTypes: []string{mistakes.Allowed}}, text, "")
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
