package dra_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// kubeletWaits is the kubelet's time limit for a call of a DRA driver.
const kubeletWaits = 45 * time.Second

// prepareTogether prepares claims in one call, and returns the errors by UID. After the kubelet's time limit, all fail.
func prepareTogether(r *dratest.Rig, claims ...*resourceapi.ResourceClaim) map[string]string {
	k := dra.Unstarted(r.Agent, dra.KubeletOptions{Node: "node1"})
	ctx, cancel := context.WithTimeout(r.T.Context(), kubeletWaits)
	defer cancel()
	answer, err := k.Intercept(ctx, new(drapb.NodePrepareResourcesRequest), func(ctx context.Context, _ any) (any, error) {
		all, err := k.PrepareResourceClaims(ctx, claims)
		prepared := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
		for uid, one := range all {
			prepared.Claims[string(uid)] = new(drapb.NodePrepareResourceResponse)
			if one.Err != nil {
				prepared.Claims[string(uid)].Error = one.Err.Error()
			}
		}
		return prepared, err
	})
	if err = errors.Join(err, ctx.Err()); err != nil {
		r.T.Errorf("the call fails: %v", err)
		return nil
	}
	failed := map[string]string{}
	for uid, one := range answer.(*drapb.NodePrepareResourcesResponse).Claims {
		failed[uid] = one.Error
	}
	return failed
}

// brokenMetadata fails for a claim.
type brokenMetadata struct{ of types.UID }

func (b brokenMetadata) UpdateRequestMetadata(_ context.Context, _, _ string, uid types.UID, _ string, _ []kubeletplugin.Device) error {
	if uid == b.of {
		return errors.New("no space left on device")
	}
	return nil
}

// A pod has two claims, and something holds up the first.
func TestClaimsOfOneCallDoNotFailEachOther(t *testing.T) {
	hang := func(command, _, ifName string) error {
		if command == "DEL" && ifName != "net3" {
			time.Sleep(network.PluginLimit)
		}
		return nil
	}
	late := func(r *dratest.Rig) *resourceapi.ResourceClaim {
		return r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""), dratest.Net("y", "net2", "late 3m"))
	}
	for name, test := range map[string]struct {
		first func(r *dratest.Rig) *resourceapi.ResourceClaim // prepares it, and returns the claim to prepare again
		fails string                                          // part of the error of the first claim; "" = it is prepared
	}{
		"a late network is being added": {func(r *dratest.Rig) *resourceapi.ResourceClaim {
			r.AttachPod(late(r))
			return late(r)
		}, ""},
		"the same, with device nodes": {func(r *dratest.Rig) *resourceapi.ResourceClaim {
			made := dratest.WithDeviceNodes(late(r))
			r.AttachPod(made)
			return made
		}, "still in progress"},
		"the DEL of its former device hangs": {func(r *dratest.Rig) *resourceapi.ResourceClaim {
			r.Plugins.SetHook(hang)
			r.AttachPod(dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`)))
			now := dratest.DeviceClaim("u1", dratest.VF2, dratest.Network(`{"type":"sriov"}`))
			r.Options.Read = func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
				return now, nil
			}
			return now
		}, "still in progress"},
		"its metadata cannot be written": {func(r *dratest.Rig) *resourceapi.ResourceClaim {
			made := r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""))
			r.AttachPod(made)
			r.Stop()
			r.MetadataWriter = brokenMetadata{"u1"}
			r.Start()
			return made
		}, "no space left"},
	} {
		t.Run(name, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			r.UseJournal("mlx5-switchdev", "")
			r.Start()
			// Another pod's claim: within a pod one DEL waits for the other.
			first, second := test.first(r), r.ClaimOf("b", "u2", "other", dratest.Net("z", "net3", ""))
			time.Sleep(time.Second)
			failed := prepareTogether(r, first, second)
			switch {
			case failed["u2"] != "":
				t.Errorf("the other claim: %s", failed["u2"])
			case test.fails == "" && failed["u1"] != "":
				t.Errorf("the claim: %s", failed["u1"])
			case test.fails != "":
				difftest.Says(t, errors.New(failed["u1"]), test.fails)
			}
			r.Plugins.SetHook(hang)
			k := dra.Unstarted(r.Agent, dra.KubeletOptions{Node: "node1"})
			ctx, cancel := context.WithTimeout(t.Context(), kubeletWaits)
			defer cancel()
			ended, err := k.UnprepareResourceClaims(ctx, []kubeletplugin.NamespacedObject{{UID: "u1"}, {UID: "u2"}})
			difftest.Must(t, errors.Join(err, ctx.Err()))
			difftest.Must(t, ended["u2"])
			difftest.Says(t, ended["u1"], "still in progress")
			time.Sleep(2 * network.PluginLimit)
		}))
	}
}

// All tests with a rig check the rule. This test checks that each kind of call is covered.
func TestNoMutexIsHeldDuringOutsideCalls(t *testing.T) {
	dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
		b.Options.Devices.Journal = dratest.JournalIn(b.Dir, "boot1")
		difftest.Write(t, filepath.Join(b.Dir, "dp/example.com-vf-0000:03:00.5-device.json"), `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.5"}}`, 0o644)
		b.Start()
		b.Prepare(dratest.DeviceClaim("u3", dratest.VF3, ""))
		b.AttachPod(dratest.OnDevice(b.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "info")), 0, dratest.VF0, ""))
		dratest.Survey(b.Agent)
		b.Prepare(dratest.OnDevice(b.ClaimOf("b", "u2", "pod2", dratest.Net("x", "net1", "")), 0, dratest.VF2, ""))
		b.RecordMultus(dratest.MultusEntry(b.Sandbox("s0", "other"), dratest.ExclusiveLease("pci-0000:03:00.4")))
		difftest.Says(t, b.RunPod(b.Sandbox("s2", "pod2")), "is held by")
		b.Stop()
		difftest.Equal(t, slices.Sorted(maps.Keys(b.OutsideCalls)), []string{"Advertised", "ClaimsOf", "Host", "Lineage", "Netns", "Notify", "Others", "Reached", "Status", "netns, with the journal locked"})
	})
}

// The kubelet prepares all claims of a pod in one call, in the pod's order.
func TestClaimsOfOneCallKeepTheirOrder(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		r.Prepare(r.ClaimOf("first", "u", "pod", dratest.Net("x", "net", "")))
		var claims []*resourceapi.ResourceClaim
		var want []string
		for n := range 20 {
			uid := fmt.Sprint("u", 99-n)
			claims, want = append(claims, r.ClaimOf(uid, uid, "pod", dratest.Net("x", "net"+uid, ""))), append(want, "ADD s1 net"+uid)
		}
		prepareTogether(r, claims...)
		r.Start()
		r.ListSandboxes()
		sb := r.RunSandbox("s1", "pod")
		difftest.Equal(t, r.CallNames(), append([]string{"ADD s1 net"}, want...))
		r.EndPod(sb)
	})
}
