package network_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// The golden file has what containers get for each kind of attachment, and what they do not get.
func TestSpecsOfGates(t *testing.T) {
	var all strings.Builder
	for _, kind := range []struct {
		name  string
		claim func(r *dratest.Rig) *resourceapi.ResourceClaim
	}{
		{"a network", func(r *dratest.Rig) *resourceapi.ResourceClaim {
			return r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""))
		}},
		{"a VF with a network", func(*dratest.Rig) *resourceapi.ResourceClaim {
			claim := dratest.DeviceClaim("u1", dratest.VF3, dratest.Network(`{"type":"sriov"}`))
			dratest.SetIfName(claim, "net2") // the captured pod has no net2
			return claim
		}},
		{"two VFs for one request", func(*dratest.Rig) *resourceapi.ResourceClaim {
			return dratest.ClaimFor("u1", dratest.Request{Name: "r/s", Device: dratest.VF3, Count: 2}, dratest.Request{Name: "r/s", Device: dratest.VF0, Count: 2})
		}},
	} {
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			r.UseJournal("mlx5-switchdev", strings.Replace(dratest.Rules, `.vfIndex == 3`, `.vfIndex >= 0`, 1))
			agent := r.Start()
			r.AttachPod(kind.claim(r))
			record := r.Record("u1")
			var text strings.Builder
			for _, exposed := range []error{nil, errors.New("it is theirs")} {
				g := network.Gate{
					Kind: dratest.Driver + "/claim", Hook: "/bin/gate", Node: agent.Node, Unexposed: func(string, string) error { return exposed }, Log: slog.New(slog.DiscardHandler),
				}
				for n := range record.Attachments {
					at := &record.Attachments[n]
					spec, refusals, err := g.Spec(&record, at, exposed != nil)
					difftest.Must(t, err)
					fmt.Fprintf(&text, "-- %s: %s, exposed and with a user namespace: %v --\n%s", kind.name, g.File(&record, at), exposed != nil, cdispec.Encode(spec))
					for _, refusal := range refusals {
						fmt.Fprintf(&text, "withheld: %s: %s\n", refusal.Device, refusal.Why)
					}
					device := g.Device(&record, at)
					fmt.Fprintf(&text, "the kubelet gets: %q of %s, %q, with metadata: %v\n", device.Requests, device.DeviceName, device.CDIDeviceIDs, device.Metadata != nil)
				}
			}
			all.WriteString(strings.ReplaceAll(text.String(), r.Dir, "/DIR"))
		})
	}
	goldentest.File(t, "testdata/specs.txt", all.String())
}
