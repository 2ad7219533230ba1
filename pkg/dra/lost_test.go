package dra_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/sysfs"
)

// host-device's DEL fails for want of a function that was unplugged, though there is nothing
// left to do. What comes back in its place is another device, and nobody's.
func TestADeviceThatWasLostIsOfferedWhenItIsBack(t *testing.T) {
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	p.kernel = plugIn(&r.options, r.dir)
	claim := onDevice(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}), 0, vf0, "")
	client := server(nil, claim)
	agent, dir := ownKubelet(t, client, r, n, p)
	answer, err := drapb.NewDRAPluginClient(dial(t, filepath.Join(dir, "dra.sock"))).NodePrepareResources(t.Context(),
		&drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: "ns", Name: "a", Uid: "u1"}}})
	if err != nil || answer.Claims["u1"].GetError() != "" {
		t.Fatal(answer, err)
	}
	sb := r.sandbox("s1", "pod")
	must(t, r.runPod(sb))
	function := filepath.Join(r.dir, "kernel/sys/bus/pci/devices/0000:03:00.2")
	must(t, os.Rename(function, filepath.Join(r.dir, "aside")))
	p.set(always)
	r.endPod(sb)
	r.unprepared("u1")
	r.eventually("its DEL is given up", func() bool { return agent.Census().Phases["Abandoned"] == 1 })
	must(t, os.Rename(filepath.Join(r.dir, "aside"), function))
	n.change(func() {})
	devicesIn(t, client, sf4, sf7, "cni", pf, vf0, vf2, vf3)
}

// VFs that were made anew while a pod had one are as whoever made them wants them.
func TestWhatCameInThePlaceOfADeviceIsLeftAlone(t *testing.T) {
	withHardware(t, func(t *testing.T, b *bench) {
		b.attachTo(t, vf0, "")
		b.replaceVF0(t)
		b.kernel.Fault = func() error { t.Error("it is changed"); return nil }
		b.endPod(b.sandbox("s1", "pod"))
		b.unprepared("u1")
		b.expectNothing()
	})
}

// replaceVF0 puts another device in the place of one.
func (b *bench) replaceVF0(t *testing.T) {
	t.Helper()
	at, err := filepath.EvalSymlinks(filepath.Join(b.dir, "kernel/sys/bus/pci/devices/0000:03:00.2"))
	must(t, err)
	must(t, os.Rename(at, at+".old"))
	must(t, os.CopyFS(at, os.DirFS(at+".old")))
}

// Multus may have given it to a pod by now.
func TestTheDELOfALostDeviceWaitsForWhoHasWhatCameInItsPlace(t *testing.T) {
	withHardware(t, func(t *testing.T, b *bench) {
		b.stop()
		sys, err := sysfs.Open(filepath.Join(b.dir, "kernel/sys"))
		must(t, err)
		b.options.Inventory.Lineage = sys.Lineage
		j := journal.Open(filepath.Join(b.dir, "journal"), "boot1")
		b.options.Journal = j
		b.agent = b.start()
		b.attachTo(t, vf0, "")
		b.replaceVF0(t)
		b.plugins.set(always)
		b.endPod(b.sandbox("s1", "pod"))
		b.unprepared("u1")
		b.plugins.set(nil)
		b.sandbox("s9", "other")
		line, err := sys.Lineage("0000:03:00.2")
		must(t, err)
		entry := multus("other", "s9", b.netns("s9"), journal.DeviceLease{ID: line[0].ID, Mode: journal.Exclusive, Object: line[0].Inode})
		b.multus(entry)
		tried := b.plugins.calls("DEL")
		time.Sleep(3 * time.Hour)
		if n := b.plugins.calls("DEL"); n != tried || b.agent.Census().Phases["Abandoned"] != 1 {
			t.Errorf("%d DELs, which reset another pod's device; %v", n-tried, b.agent.Census())
		}
		must(t, j.Forget(entry))
		time.Sleep(2 * time.Hour)
		if n := b.plugins.calls("DEL"); n != tried+1 {
			t.Errorf("%d DELs once it is free", n-tried)
		}
		b.expectNothing()
	})
}
