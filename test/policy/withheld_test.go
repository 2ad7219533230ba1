package policy_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/state"
	ctl "devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/test/difftest"
)

// refusals is a log that collects the withheld devices.
type refusals struct {
	slog.Handler
	devices []string
}

func (r *refusals) Enabled(context.Context, slog.Level) bool { return true }
func (r *refusals) WithAttrs([]slog.Attr) slog.Handler       { return r }

func (r *refusals) Handle(_ context.Context, of slog.Record) error {
	of.Attrs(func(a slog.Attr) bool {
		if a.Key == "device" && strings.Contains(of.Message, "withheld") {
			r.devices = append(r.devices, a.Value.String())
		}
		return true
	})
	return nil
}

// taken returns the devices since the last call, sorted.
func (r *refusals) taken() (list []string) {
	list, r.devices = r.devices, nil
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
