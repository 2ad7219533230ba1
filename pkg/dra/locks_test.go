package dra_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

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
	o := r.options
	o.Netns = func(path string) error { ask("netns"); return r.options.Netns(path) }
	o.Unexposed = func(root, dir string) error { ask("directory"); return r.options.Unexposed(root, dir) }
	o.Status = func(ctx context.Context, report status.Report) error {
		ask("status")
		return r.options.Status(ctx, report)
	}
	o.Notify = func(n claim.Notice) { ask("notice"); r.options.Notify(n) }
	o.Read = func(ctx context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
		ask("claim")
		return r.options.Read(ctx, ref)
	}
	o.List = func(ctx context.Context, namespace string) ([]resourceapi.ResourceClaim, error) {
		ask("claims")
		return r.options.List(ctx, namespace)
	}
	o.Step = func(name string) {
		ask("write or exec")
		if r.options.Step != nil {
			r.options.Step(name)
		}
	}
	o.Devices.Lineage = func(device string) ([]sysfs.Object, error) { ask("lineage"); return r.options.Devices.Lineage(device) }
	o.Devices.Advertised = func(ctx context.Context, resource, device string) (bool, error) {
		ask("device plugins")
		return r.options.Devices.Advertised(ctx, resource, device)
	}
	if node := o.Devices.Inventory; node != nil {
		copied := *node
		copied.Host = func() (inventory.Host, error) { ask("host"); return node.Host() }
		copied.Others = func(ctx context.Context) (map[string]string, error) {
			ask("others")
			return node.Others(ctx)
		}
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
		difftest.Equal(t, asked, []string{"claims", "device plugins", "host", "lineage", "netns", "netns, with the journal locked", "notice", "others", "status", "write or exec"})
	})
}
