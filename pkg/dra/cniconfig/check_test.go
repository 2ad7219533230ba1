package cniconfig_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// A line is the spec of a class, or a claim for the classes of the file. Package test/mistakes has more claims, and checks
// that Prepare agrees.
func TestClassesAndClaimsAreCheckedBeforeAllocation(t *testing.T) {
	words := strings.NewReplacer("{OURS,", `{"opaque":{"driver":"`+driver+`","parameters":{"apiVersion":"cni.networking.x-k8s.io/v1alpha1","kind":"CNI",`,
		"CLASS", `"exactly":{"deviceClassName"`, "DRIVER", driver, "MACVLAN", macvlan)
	classes := map[string]*resourceapi.DeviceClassSpec{}
	goldentest.Lines(t, "testdata/checked.txt", func(line string) []string {
		what, text, _ := strings.Cut(line, " ")
		text = words.Replace(text)
		if list, one, is := strings.Cut(text, " times "); is {
			var key string
			var count int
			_, err := fmt.Sscan(list, &key, &count)
			difftest.Must(t, err)
			text = fmt.Sprintf(`{%q:[%s]}`, key, strings.TrimSuffix(strings.Repeat(one+",", count), ","))
		}
		var checked cniconfig.Checked
		policy := cniconfig.Policy{Driver: driver}
		if what == "claim" {
			var claim resourceapi.DeviceClaim
			difftest.Must(t, json.Unmarshal([]byte(text), &claim))
			checked = policy.CheckClaim(&claim, classes)
		} else {
			classes[what] = new(resourceapi.DeviceClassSpec)
			difftest.Must(t, json.Unmarshal([]byte(text), classes[what]))
			checked = policy.CheckClass(classes[what])
		}
		all := []string{fmt.Sprint("ours: ", checked.Ours)}
		for _, r := range checked.Wrong {
			all = append(all, r.At+": "+r.Rule)
		}
		return all
	})
}
