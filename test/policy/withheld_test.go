package policy_test

import (
	"bytes"
	"regexp"
	"slices"
	"testing"

	"devinfo-cni.io/pkg/core/state"
	ctl "devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/test/difftest"
)

// refusals is a log, of which only the withheld devices matter.
type refusals struct{ bytes.Buffer }

var withheld = regexp.MustCompile(`withheld.* device=(?:"([^"]*)"|(\S+))`)

// taken returns the devices since the last call, sorted.
func (r *refusals) taken() (list []string) {
	for _, found := range withheld.FindAllStringSubmatch(r.String(), -1) {
		list = append(list, found[1]+found[2])
	}
	r.Reset()
	slices.Sort(list)
	return slices.Compact(list)
}

// byList returns what devinfoctl list says that a pod with the network and one with the claim do not get.
func (n node) byList(t *testing.T, record *state.Claim) (network, claim []string) {
	dir := n.dir + "/claims"
	records, err := state.Open(dir)
	difftest.Must(t, err)
	difftest.Must(t, records.Put(record), records.Close())
	h := ctl.Open(ctl.Options{Settings: n.settings, Finder: n.finder, ClaimDir: dir, BootID: "boot", NetnsGone: func(string) (bool, error) { return false, nil }})
	list, err := h.Recorded()
	difftest.Must(t, err, h.Withhold(list))
	if len(list) != 2 {
		t.Fatalf("%v: %d attachments", n.place, len(list))
	}
	for _, a := range list {
		to := &network
		if a.Claim != "" {
			to = &claim
		}
		for _, w := range a.Withheld {
			*to = append(*to, w.Device)
		}
	}
	slices.Sort(network)
	slices.Sort(claim)
	return network, claim
}
