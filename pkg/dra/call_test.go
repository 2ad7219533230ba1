package dra_test

import (
	"context"
	"errors"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
)

// kubeletWaits is the kubelet's time limit for a call of a DRA driver.
const kubeletWaits = 45 * time.Second

// prepareTogether prepares claims in one call, and returns the errors by UID. After the kubelet's time limit, all fail.
func (r *rig) prepareTogether(claims ...*resourceapi.ResourceClaim) map[string]string {
	k := dra.Unstarted(r.agent, dra.KubeletOptions{Node: "node1"})
	ctx, cancel := context.WithTimeout(r.t.Context(), kubeletWaits)
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
		r.t.Errorf("the call fails: %v", err)
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
			time.Sleep(claim.PluginLimit)
		}
		return nil
	}
	late := func(r *rig) *resourceapi.ResourceClaim {
		return r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}, netRequest{"y", "net2", "late 3m"})
	}
	for name, test := range map[string]struct {
		first func(r *rig, p *plugins) *resourceapi.ResourceClaim // prepares it, and returns the claim to prepare again
		fails string                                              // part of the error of the first claim; "" = it is prepared
	}{
		"a late network is being added": {func(r *rig, _ *plugins) *resourceapi.ResourceClaim {
			r.attachPod(late(r))
			return late(r)
		}, ""},
		"the same, with device nodes": {func(r *rig, _ *plugins) *resourceapi.ResourceClaim {
			made, bare := late(r), ownClaim("u1", vf3, "")
			made.Spec.Devices.Requests = append(made.Spec.Devices.Requests, bare.Spec.Devices.Requests...)
			results := &made.Status.Allocation.Devices.Results
			*results = append(*results, bare.Status.Allocation.Devices.Results...)
			r.attachPod(made)
			return made
		}, "still in progress"},
		"the DEL of its former device hangs": {func(r *rig, p *plugins) *resourceapi.ResourceClaim {
			p.setHook(hang)
			r.attachPod(ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
			return ownClaim("u1", vf2, network(`{"type":"sriov"}`))
		}, "still in progress"},
		"its metadata cannot be written": {func(r *rig, _ *plugins) *resourceapi.ResourceClaim {
			made := r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""})
			r.attachPod(made)
			r.stop()
			r.metadataWriter = brokenMetadata{"u1"}
			r.start()
			return made
		}, "no space left"},
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			r.useJournal("mlx5-switchdev", "")
			r.start()
			first, second := test.first(r, p), r.claimOf("b", "u2", "pod", netRequest{"z", "net3", ""})
			time.Sleep(time.Second)
			failed := r.prepareTogether(first, second)
			switch {
			case failed["u2"] != "":
				t.Errorf("the other claim: %s", failed["u2"])
			case test.fails == "" && failed["u1"] != "":
				t.Errorf("the claim: %s", failed["u1"])
			case test.fails != "":
				says(t, errors.New(failed["u1"]), test.fails)
			}
			p.setHook(hang)
			k := dra.Unstarted(r.agent, dra.KubeletOptions{Node: "node1"})
			ctx, cancel := context.WithTimeout(t.Context(), kubeletWaits)
			defer cancel()
			ended, err := k.UnprepareResourceClaims(ctx, []kubeletplugin.NamespacedObject{{UID: "u1"}, {UID: "u2"}})
			must(t, errors.Join(err, ctx.Err()))
			must(t, ended["u2"])
			says(t, ended["u1"], "still in progress")
			time.Sleep(2 * claim.PluginLimit)
		}))
	}
}
