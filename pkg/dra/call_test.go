package dra_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/test/difftest"
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

// A claim by name changes its pod, and the next pod has the same interface name by a claim of its own.
func TestInterfaceNameStaysUniqueWhenClaimChangesPod(t *testing.T) {
	for name, then := range map[string]func(r *rig, shared *resourceapi.ResourceClaim){
		"at the start of a sandbox":    func(*rig, *resourceapi.ResourceClaim) {},
		"in the sweep":                 func(*rig, *resourceapi.ResourceClaim) { time.Sleep(5 * time.Minute) },
		"when the kubelet restarts":    func(r *rig, shared *resourceapi.ResourceClaim) { r.prepare(shared) },
		"after a restart of the agent": func(r *rig, _ *resourceapi.ResourceClaim) { r.startSynchronized(); waitIdle() },
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			shared, own := r.claimOf("shared", "u1", "one", netRequest{"x", "net1", ""}), fromTemplate(r.claimOf("own", "u2", "two", netRequest{"x", "net1", ""}))
			current := map[string]*resourceapi.ResourceClaim{"shared": shared, "own": own}
			r.options.Read = func(_ context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
				return current[ref.Name], nil
			}
			r.startSynchronized()
			r.prepare(shared)
			r.prepareFails(r.claimOf("b", "u3", "one", netRequest{"x", "net1", ""}), `request "x": claim ns/shared already uses ifName "net1"; `+
				"give each request a different ifName, by parameters in the claim that apply to this request only")
			first := r.runSandbox("s1", "one")
			current["shared"] = r.reserveFor(shared, "two")
			r.prepare(own)
			r.endPod(first)
			current["shared"].Status.ReservedFor = current["shared"].Status.ReservedFor[1:]
			then(r, current["shared"])
			second := r.sandbox("s2", "two")
			says(t, r.runPod(second), `request "x": claim ns/own already uses ifName "net1"`)
			difftest.Equal(t, p.violations, []string(nil))
			r.endPod(second)
			r.unprepare("u2")
			r.endAndUnprepare(r.runSandbox("s3", "two"), "u1")
		}))
	}
}

// withLockCheck returns the rig's options, with functions that call locks first. locks takes both mutexes, so
// the test hangs if the agent holds one of them during a read or a call.
func (r *rig) withLockCheck(locks func()) claim.Options {
	ask := func(what string) {
		locks()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.outsideCalls == nil {
			r.outsideCalls = map[string]bool{}
		}
		r.outsideCalls[what] = true
	}
	// instrument makes each function of to ask first. live has the functions that it then calls: tests change them.
	instrument := func(live, to any) {
		now, fields := reflect.ValueOf(live).Elem(), reflect.ValueOf(to).Elem()
		for n := range fields.NumField() {
			name, field := fields.Type().Field(n).Name, fields.Field(n)
			if field.Kind() != reflect.Func || field.IsNil() || name == "Waits" { // Waits reads only memory
				continue
			}
			field.Set(reflect.MakeFunc(field.Type(), func(args []reflect.Value) []reflect.Value {
				ask(name)
				return now.Field(n).Call(args)
			}))
		}
	}
	o := r.options
	instrument(&r.options, &o)
	instrument(&r.options.Devices, &o.Devices)
	if node := o.Devices.Inventory; node != nil {
		copied := *node
		instrument(node, &copied)
		o.Devices.Inventory = &copied
	}
	if j := o.Devices.Journal; j != nil {
		gone := j.NetnsGone
		j.NetnsGone = func(path string) (bool, error) { ask("netns, with the journal locked"); return gone(path) }
	}
	return o
}

// All tests with a rig check the rule. This test checks that each kind of call is covered.
func TestNoMutexIsHeldDuringOutsideCalls(t *testing.T) {
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		b.options.Devices.Journal = journalIn(b.dir, "boot1")
		b.writePluginFile(pluginFileText)
		b.start()
		b.prepare(ownClaim("u3", vf3, ""))
		b.attachPod(onDevice(b.claimOf("a", "u1", "pod", netRequest{"x", "net1", "info"}), 0, vf0, ""))
		dra.Survey(b.agent)
		b.prepare(onDevice(b.claimOf("b", "u2", "pod2", netRequest{"x", "net1", ""}), 0, vf2, ""))
		b.recordMultus(multusEntry("other", "s0", b.dir, exclusiveLease("pci-0000:03:00.4")))
		says(t, b.runPod(b.sandbox("s2", "pod2")), "is held by")
		asked := slices.Sorted(maps.Keys(b.outsideCalls))
		difftest.Equal(t, asked, []string{"Advertised", "Host", "Lineage", "List", "Netns", "Notify", "Others", "Reached", "Status", "netns, with the journal locked"})
	})
}
